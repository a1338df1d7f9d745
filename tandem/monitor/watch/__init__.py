"""`tandem watch`: a live view of a run, read from its journals."""
