"""What a run settles before its first step: automatic settings, timing, the exchange strategy."""
