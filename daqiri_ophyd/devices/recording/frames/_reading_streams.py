"""Streams of readings, which only the RunEngine knows."""

from collections.abc import Hashable

__all__ = ["ReadingStreams"]


class ReadingStreams:
    """Tells whether a reading needs a file of its own: a file belongs to one stream of one run.

    Best a plan says the stream of each reading (`plans.reading_streams_wrapper`). Otherwise it is
    inferred: the RunEngine requests the data keys once for each stream of each run, when it is
    declared or after its first ``trigger``. Once there are several, the next reading may belong to
    any of them, and gets a file of its own.
    """

    def __init__(self) -> None:
        self.fresh = False
        """Whether the next reading begins a file."""
        self.completes = False
        """Whether a RunEngine completes the documents of rows."""
        self._known = 0
        self._run: str | None = None
        self._told = False
        self._owner: Hashable = None  # stream of the latest file, as a plan told

    def add(self, run: str | None) -> None:
        """Note that the data keys of another stream were requested.

        Parameters
        ----------
        run : str, optional
            The open run, if no other is open: streams of earlier ones get no more readings.
        """
        if run is not None and run != self._run:
            self._known = 0
        self._run = run
        self._known += 1

    def tell(self, stream: Hashable) -> bool:
        """Note the stream of the latest reading; return whether it differs from the one before."""
        moved = self._told and stream != self._owner
        self._told, self._owner = True, stream
        return moved

    @property
    def is_shared(self) -> bool:
        """Whether the next reading may belong to another stream than the latest one."""
        return not self._told and self._known > 1
