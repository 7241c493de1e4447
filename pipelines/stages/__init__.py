"""One file per arrow of the flow: images -> teacher -> [vocabulary -> words -> student] -> features -> evaluation."""
