"""Heartbeats between the processes of a run: who is silent, where, since when and why."""
