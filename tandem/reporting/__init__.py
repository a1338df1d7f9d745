"""Explains a run: reads logs of Tandem and other programs, judges them, and answers the eleven questions."""
