"""The device that owns an engine, its ports, memory regions and GPUs."""
