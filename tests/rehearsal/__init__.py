"""Tests of the rehearsal device."""
