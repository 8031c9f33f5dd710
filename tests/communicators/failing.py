"""One of two processes fails while the other waits for it: ``python -m tests.communicators.failing error``."""

import sys

from foldbatch.communicators import find, share
from foldbatch.errors import ProcessError


def main(how: str) -> None:
    communicator = find()
    try:
        raise ValueError("an error that is caught ends nobody")
    except ValueError:
        share(communicator, None)
    if communicator.rank == 1:
        if how == "error":
            raise RuntimeError("mine")
        sys.exit(3)
    try:
        share(communicator, None)
    except ProcessError as error:
        print(f"told: {error}", flush=True)
        raise
    print("went on")


if __name__ == "__main__":
    main(sys.argv[1])
