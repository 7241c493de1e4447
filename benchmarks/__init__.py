"""Ratios against bare loops and peers; each module is a program: `python benchmarks/NAME.py --json FILE`."""
