"""Models against each other: which one translates a test set better, and whether chance alone could make it look so."""
