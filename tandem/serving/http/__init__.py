"""What stands between a connection and the service: limits, keys, the forms of requests and answers, files."""
