"""Many processes as one: who a process is, and how gradients cross between processes."""
