"""The server, as a real process with real sockets."""
