"""Feature extractors with named taps, and the heads that tasks put on them."""
