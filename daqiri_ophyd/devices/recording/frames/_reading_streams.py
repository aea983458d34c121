"""Streams of readings, which only the RunEngine knows."""

from collections.abc import Collection, Hashable

__all__ = ["ReadingStreams"]


class ReadingStreams:
    """Decides whether a reading needs a file of its own: a file belongs to one stream of one run.

    Best a plan says the stream of each reading (`plans.reading_streams_wrapper`). Otherwise it is
    inferred: the RunEngine requests the data keys once for each stream of each run, when it is
    declared or after its first ``trigger``. Once there are several, a reading may belong to any of
    them, and gets a file of its own.
    """

    def __init__(self) -> None:
        self.fresh = False
        """Whether the next reading begins a file."""
        self.completes = False
        """Whether a RunEngine completes the documents of rows."""
        self._known = 0
        self._runs: set[str] = set()  # that have these streams, as far as they are known
        self._told = False  # a plan says the streams
        self._owner: Hashable = None  # stream of the latest file, as a plan said
        self._next: Hashable = None  # stream of the latest reading; None: nobody said it

    def add(self, open_runs: Collection[str]) -> None:
        """Note that the data keys of another stream were requested.

        Parameters
        ----------
        open_runs : collection of str
            The open runs, as far as they are known. Streams of ended runs get no more readings.
        """
        if self._runs and self._runs.isdisjoint(open_runs):
            self._known = 0
            self._runs.clear()
        self._runs.update(open_runs)
        self._known += 1

    def tell(self, stream: Hashable) -> None:
        """Note the stream of the latest reading."""
        self._told, self._next = True, stream

    def begin_file(self) -> None:
        """Note that the latest reading is the first of its file."""
        self._owner = self._next

    def moves(self) -> bool:
        """Return whether the latest reading must leave the file, for a plan told streams."""
        unknown = self._next is None
        return self._told and (unknown or self._owner is None or self._next != self._owner)

    def end_reading(self) -> None:
        """Note that the latest reading is in documents."""
        self._next = None

    @property
    def is_shared(self) -> bool:
        """Whether the next reading may belong to another stream than the latest one."""
        return not self._told and self._known > 1
