"""Faults: updates that a device refused: a gradient is not finite, or its batch read an id out of range.

Nobody waits for a device to find out. A word in its memory is 0 until an update meets a bad gradient. From
then on all updates on the device do nothing, so parameters and moments stay as they were before that update.
Whoever next reads something (a loss, a gradient, a parameter, an optimizer's state) gets the error, and step
counts go back. After that, updates work again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from foldbatch.engines.cuda.driver import DeviceBuffer
from foldbatch.errors import ParameterError

MANY = 1024  # updates that nobody asked about, after which the word is read: their records take memory


class GuardedUpdate(NamedTuple):
    """An update under way."""

    code: int  # what the word becomes if the batch is bad; ``code + 1 + k`` if gradient k is
    names: Sequence[str]  # of the gradients
    undo: Callable[[], None]  # takes back what the host counted


class Faults:
    """The word of a device, and the updates that may have set it.

    Args:
        word: 8 bytes on the device; update kernels do nothing unless they are 0.
        read: waits for the device, and returns the word.
        clear: makes it 0.
        locked: returns what is held by the thread that uses the device.
    """

    def __init__(
        self,
        word: DeviceBuffer,
        read: Callable[[], int],
        clear: Callable[[], None],
        locked: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.word, self._read, self._clear, self._locked = word, read, clear, locked
        self._updates: list[GuardedUpdate] = []
        self._next = 1
        clear()

    def tidy(self) -> None:
        """Look where there are very many updates, which launches the step that is due.

        Raises:
            ParameterError: as `look` does; the update that was to be promised must not be made.
        """
        if len(self._updates) >= MANY:
            self.look()

    def promised(self, names: Sequence[str], undo: Callable[[], None]) -> int:
        """Return what the word becomes if the batch of an update is bad; more by 1 + k if gradient k is.

        The caller launches what sets the word, before the update's kernels.

        Args:
            names: of the gradients.
            undo: takes back what the host counts for this update.
        """
        code = self._next
        self._updates.append(GuardedUpdate(code, names, undo))
        self._next += 1 + len(names)
        return code

    def look(self, word: int | None = None) -> None:
        """Raise the error of the first bad update since somebody looked, if there is one.

        Args:
            word: what the word was, where it was copied from the device together with something else: if it
                was 0, nobody waits.

        Raises:
            ParameterError: when a gradient was not finite, or its batch was bad.
        """
        with self._locked():
            if not self._updates or word == 0:
                return
            word = self._read()  # somebody may have been quicker
            updates, self._updates = self._updates, []
            if not word:
                return
            bad = [update for update in updates if update.code + len(update.names) >= word]
            self._clear()
            for update in reversed(bad):
                update.undo()
        first = bad[0]
        fix = "nothing was changed from then on; "
        if word == first.code:
            expected, found = "ids within range in the batch it is of", "one that is not"
            fix += "read the loss of each batch, which names the example"
            raise ParameterError("gradients", expected, found, fix)
        where = f"{first.names[word - first.code - 1]} gradient"
        fix += "call program.find_nan(examples), or lower the learning rate"
        raise ParameterError(where, "finite numbers", "a NaN or an infinity", fix)

    def forget(self) -> None:
        """Let updates work again, with the error of a bad one dropped: the caller raises a better one."""
        try:
            self.look()
        except ParameterError:
            return
