"""Packet acquisition for Bluesky."""
