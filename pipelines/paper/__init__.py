"""The paper's nine tables as data, and the presets that make their rows."""
