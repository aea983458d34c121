"""Motors to scan; replace them with those of the beamline."""

from ophyd.sim import motor1, motor2  # noqa: F401
