"""From feature vectors to visual words to bags of words."""
