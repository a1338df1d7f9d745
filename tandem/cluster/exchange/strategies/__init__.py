"""The exchange strategies, a module each; tandem/registry.py lists them."""
