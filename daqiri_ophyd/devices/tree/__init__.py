"""The device tree of a configuration."""
