"""Devices that record to files."""
