"""Limits by which both the doctor, before a run, and the report, after it, judge."""

from __future__ import annotations

# Exposed communication above this share of a training step is worth a faster link or a thriftier exchange: ten
# times the rate would save nearly as much of the bill. The same holds for any other part beside compute.
BOTTLENECK_SHARE = 0.2
# Other programs, or other guests of the hypervisor, that take more than this share of a host's processors: a training
# that has all of them in use is slowed down by at least as much.
DISTURBED_SHARE = 0.1
