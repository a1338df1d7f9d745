"""Learning rates as functions of the step: a file a schedule, found by name in `tandem.registry.SCHEDULES`."""
