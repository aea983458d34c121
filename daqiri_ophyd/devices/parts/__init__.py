"""Base classes, signals and statuses of the devices."""
