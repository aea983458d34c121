"""Bluesky plans, installed as ``daqiri_ophyd.plans``."""
