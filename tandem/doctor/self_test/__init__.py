"""`tandem doctor --self-test`: the real thing on whatever cards are here, and one page of results to send in."""
