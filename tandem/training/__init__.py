"""The training loop: batches, schedule, step, evaluation and checkpoints."""
