"""Figures of what the pipeline makes, as PNG files."""

import logging

# Before matplotlib is imported: it says on standard error that it makes its list of fonts, once per user.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
