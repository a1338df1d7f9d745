"""Limits by which both the doctor, before a run, and the report, after it, judge."""

from __future__ import annotations

# Exposed communication above this share of a training step is worth a faster link or a thriftier exchange: ten
# times the rate would save nearly as much of the bill. The same holds for any other part beside compute.
BOTTLENECK_SHARE = 0.2
