"""What a run would take on a GPU that is not here, by arithmetic."""
