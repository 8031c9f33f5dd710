"""Interrupts: Ctrl-C and SIGTERM wait until what is under way can be left without harm."""

import signal
import threading
from types import FrameType
from typing import Any, Final, Self

DEFAULTS: Final = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Interrupts:
    """Notes a signal, within a ``with`` statement, and raises its exception where `look` is called.

    The second signal is not held back. A signal for which the user has set a handler is left to it; so are
    all signals outside of the main thread, where Python runs no handlers.

    >>> import os
    >>> try:
    ...     with Interrupts() as interrupts:
    ...         os.kill(os.getpid(), signal.SIGINT)
    ...         print("this is done first")
    ...         interrupts.look()
    ... except KeyboardInterrupt:
    ...     print("interrupted", interrupts.raised)
    this is done first
    interrupted True
    """

    def __init__(self) -> None:
        self.raised = False
        self._noted: int | None = None
        self._held: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number, default in DEFAULTS.items():
                if signal.getsignal(number) == default:
                    self._held[number] = default
                    signal.signal(number, self._note)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._let_go()
        if error is None:
            self.look()

    @property
    def noted(self) -> int:
        """The signal that came, or 0."""
        return self._noted or 0

    def look(self, agreed: int | None = None) -> None:
        """Raise the exception of a signal that came."""
        number = self.noted if agreed is None else agreed
        if not number:
            return
        self._noted, self.raised = None, True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = number
        self._let_go()

    def _let_go(self) -> None:
        for number, handler in self._held.items():
            signal.signal(number, handler)
        self._held = {}
