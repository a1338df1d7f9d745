"""Ids to logits to text: the Transformer, its loss and its search."""
