"""The HTTP server: LibreTranslate's API over CTranslate2, with batches across requests."""
