"""From finished runs to tables for people: the paper's layout, ours beside the paper's, in Markdown, HTML and LaTeX."""
