"""What ranks do alike in a command: of several processes one speaks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from foldbatch.communicators import Communicator
from foldbatch.errors import FoldbatchError


@contextmanager
def first_speaks(communicator: Communicator) -> Iterator[None]:
    """Let rank 0 alone print output, warnings and errors that the user can mend.

    Rank 0 learns of the others' errors, see `foldbatch.communicators.together`; they end with status 2.

    Raises:
        SystemExit: on other ranks, in place of a `FoldbatchError`, an OSError or a KeyboardInterrupt.
    """
    if communicator.rank == 0:
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nobody, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with redirect_stdout(nobody), redirect_stderr(nobody):
                yield
        except (FoldbatchError, OSError) as error:
            raise SystemExit(2) from error
        except KeyboardInterrupt as error:
            raise SystemExit(130) from error
