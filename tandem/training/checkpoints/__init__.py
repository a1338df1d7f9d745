"""A run's state on the disk: written, kept, restored, averaged, broadcast."""
