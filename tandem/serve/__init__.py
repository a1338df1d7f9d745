"""The trained model at work."""
