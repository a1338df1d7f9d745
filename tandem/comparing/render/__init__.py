"""A comparison for people: a page, Markdown, and lines for the terminal, all from the same object."""
