"""What a run means: evidence read from whoever wrote it down, verdicts, and the eleven questions answered."""
