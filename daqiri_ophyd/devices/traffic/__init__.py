"""Queues and flows."""
