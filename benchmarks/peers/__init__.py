"""Peers beside us, each in a process of its own with its own Python: what takes their part, none of their code."""
