"""COMET, a metric that is itself a model, from a folder on this disk."""
