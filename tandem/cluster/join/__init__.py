"""Joining the processes of a run: variables of launchers, the store they meet at, and the roll call."""
