"""Trainings that are killed at chosen instants and started again, and the comparison with one that was left alone."""
