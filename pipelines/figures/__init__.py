"""Figures of what the pipeline makes, as PNG files."""
