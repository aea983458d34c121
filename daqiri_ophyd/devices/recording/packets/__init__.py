"""Captures: packets of receive queues."""
