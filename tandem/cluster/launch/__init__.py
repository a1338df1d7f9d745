"""`tandem launch`: one command on several hosts, over ssh."""
