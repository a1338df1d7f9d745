"""Text to shards: clean, tokenise and store parallel text as a prepared corpus."""
