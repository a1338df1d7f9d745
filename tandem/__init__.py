"""Tandem trains Transformer translators on however many machines there are."""

__version__ = "0.1.0"
