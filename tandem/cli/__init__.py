"""The command line: parse, call, print. Whatever computes is imported by the command that needs it."""
