"""The eleven questions, a module for each theme: what was found, said in a sentence with its evidence."""
