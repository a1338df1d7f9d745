"""Runs as others wrote them down: one module a format, each turning what it finds into a RunRecord."""
