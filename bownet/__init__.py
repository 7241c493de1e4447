"""The method: images, networks with named taps, visual words, training tasks. Knows nothing of Ray or MLflow."""
