"""Readers of runs: one module a program."""
