"""Progress of a shipper."""

from dataclasses import dataclass

__all__ = ["ShipperState"]


@dataclass(frozen=True, slots=True)
class ShipperState:
    """Progress of a shipper.

    Parameters
    ----------
    shipped, shipped_bytes : int
        Files that are in the store since it was started, and their bytes.
    unsent, unsent_bytes : int
        Files that are not in the store yet, and their bytes.
    sending_bytes : int
        Bytes of those that were sent already.
    oldest_s : float
        Age of the oldest of them, s; 0: there is none.
    error : str
        Why the latest attempt failed; empty: it did not.
    """

    shipped: int = 0
    shipped_bytes: int = 0
    unsent: int = 0
    unsent_bytes: int = 0
    sending_bytes: int = 0
    oldest_s: float = 0.0
    error: str = ""
