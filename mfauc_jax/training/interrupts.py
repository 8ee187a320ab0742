"""Ctrl-C and SIGTERM during a fit: noted at once, obeyed after the present iteration, so that nothing is lost."""

import logging
import signal
import threading
from types import FrameType
from typing import Any

LOG = logging.getLogger("mfauc_jax")


class Interrupts:
    """Notes signals while it is entered. A second Ctrl-C raises KeyboardInterrupt, as ever.

    Only the main thread receives signals, and a handler that the application has set itself is left alone: then
    `noted` stays None.
    """

    def __init__(self) -> None:
        self.noted: str | None = None  # the name of the first signal
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            own = {  # the handlers that may be replaced; None: one that was not set from Python, such as JAX's own
                signal.SIGINT: (signal.default_int_handler,),
                signal.SIGTERM: (signal.SIG_DFL, None),
            }
            for number, replaceable in own.items():
                if signal.getsignal(number) in replaceable:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        name = signal.Signals(number).name
        if self.noted is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.noted = self.noted or name
        LOG.warning("%s: the fit ends after this iteration; a second Ctrl-C ends it now", name)
