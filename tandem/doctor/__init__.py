"""Before you pay: what the machines, the link and the corpus can do, and what a run on them would take."""
