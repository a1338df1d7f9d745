"""Corpora by name to text files on this disk: catalog, downloads, archives, test sets."""
