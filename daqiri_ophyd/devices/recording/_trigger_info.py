"""``TriggerInfo`` of ophyd-async, as a receiver understands it."""

from dataclasses import dataclass
from typing import Any

from ._errors import CaptureError

__all__ = ["Triggers"]

# The detector is started by whoever starts it, or by each trigger; names of several versions.
_INTERNAL = "INTERNAL"
_EXTERNAL = (
    *("EXTERNAL_EDGE", "EXTERNAL_LEVEL"),
    *("EDGE_TRIGGER", "CONSTANT_GATE", "VARIABLE_GATE"),
)
_PER_ROW = ("exposures_per_event", "exposures_per_collection", "collections_per_event")
_UNDERSTOOD = {"number_of_events", "trigger", "deadtime", "livetime", "exposure_timeout", *_PER_ROW}


@dataclass(frozen=True, kw_only=True, slots=True)
class Triggers:
    """Triggers of a detector that is somewhere else; its packets arrive here.

    Parameters
    ----------
    events : int
        Rows of each fly scan; 0: no limit.
    external : bool
        Whether something else, such as a PandA, triggers the detector.
    livetime, deadtime : float
        Length of an exposure, and time between two, s; 0: not known.
    timeout : float, optional
        Longest time for one row, s; None: none was asked for.
    """

    events: int
    external: bool = False
    livetime: float = 0.0
    deadtime: float = 0.0
    timeout: float | None = None

    @classmethod
    def of(cls, info: Any, *, what: str, row: str) -> "Triggers":
        """Return what a ``TriggerInfo`` asks for.

        Parameters
        ----------
        info : TriggerInfo
            It has `number_of_events`.
        what : str
            What is prepared: ``a capture``.
        row : str
            What a row has: ``file``.

        Raises
        ------
        CaptureError
            If a field asks for something that a receiver cannot do.
        """
        given = set(getattr(info, "model_fields_set", ()))
        if unknown := given - _UNDERSTOOD:
            raise CaptureError(f"{', '.join(sorted(unknown))}: {what} has no such field.")
        trigger = getattr(info, "trigger", None) or _INTERNAL
        kind = getattr(trigger, "name", trigger)
        if kind not in (_INTERNAL, *_EXTERNAL):
            raise CaptureError(
                f"trigger is {trigger}; accepted are {', '.join((_INTERNAL, *_EXTERNAL))}."
            )
        for name in _PER_ROW:
            if (number := getattr(info, name, 1)) != 1:
                raise CaptureError(
                    f"{name} is {number}; accepted is 1: a row has one {row}. Prepare for as many "
                    f"events as {row}s arrive, in a stream of its own; exposures that the detector "
                    f"adds up arrive as one {row}."
                )
        livetime, deadtime = (getattr(info, name, 0) or 0.0 for name in ("livetime", "deadtime"))
        if kind == _INTERNAL and livetime:
            raise CaptureError(
                f"livetime is {livetime:g} and trigger is INTERNAL; {what} receives what the "
                "detector sends, and has no exposure time. Set that at the detector and leave it "
                "out here; if something else triggers the detector, trigger is EXTERNAL_EDGE or "
                "EXTERNAL_LEVEL."
            )
        return cls(
            events=_one_number(info.number_of_events),
            external=kind != _INTERNAL,
            livetime=livetime,
            deadtime=deadtime,
            # Its default of a few seconds is not a request of the user.
            timeout=info.exposure_timeout if "exposure_timeout" in given else None,
        )


def _one_number(events: Any) -> int:
    # Versions of ophyd-async took one number for each kickoff.
    if isinstance(events, list | tuple) and len(events) == 1:
        events = events[0]
    if isinstance(events, bool) or not isinstance(events, int) or events < 0:
        raise CaptureError(
            f"number_of_events is {events}; accepted is one number, 0 or more. It is that of each "
            "kickoff; prepare again for another number."
        )
    return events
