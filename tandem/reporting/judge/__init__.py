"""What the curves of a run say: trends, verdicts, the network's share, step times."""
