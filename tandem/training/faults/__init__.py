"""What interrupts a training: requests to stop, lost and silent processes, losses that explode."""
