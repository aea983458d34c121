"""What commands that run plans have in common."""

import signal
import threading

from daqiri_ophyd.cli._workspace import WaitForPlan


def test_a_signal_that_another_thread_got_is_handled_during_a_plan():
    ended = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: ended.set())
    try:
        # It does not end a wait of the main thread.
        other = threading.Timer(
            0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        )
        other.start()
        WaitForPlan().block(ended)
        other.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended.is_set()
