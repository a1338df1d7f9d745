"""HTML: taken apart, its sentences translated, its tags put back where the words went."""
