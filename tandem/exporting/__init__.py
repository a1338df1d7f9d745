"""A trained run as a model of another program: written, loaded back, compared with ours, and only then left behind."""
