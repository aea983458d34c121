"""Engine configurations, installed as ``daqiri_ophyd.profiles``."""
