"""Checks of the host and of replays."""
