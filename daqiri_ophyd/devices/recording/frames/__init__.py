"""Frame detectors and reorder plans."""
