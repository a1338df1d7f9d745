"""A report for people: a page with charts, Markdown, and lines for the terminal, all from the same object."""
