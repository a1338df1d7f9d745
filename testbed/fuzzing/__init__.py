"""Damaged and arbitrary input for everything that Tandem reads: each reader, and the files that it is tried on."""
