"""The protocols of the paper's evaluation: features and labels go in, metrics and a protocol card come out."""
