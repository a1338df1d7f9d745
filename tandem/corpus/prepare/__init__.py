"""Text files to a prepared corpus: read, check, clean, learn the vocabulary, encode."""
