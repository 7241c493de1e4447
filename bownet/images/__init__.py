"""Pictures: the embedded scenes, and what is done to a batch before a network sees it."""
