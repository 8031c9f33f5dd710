"""Trainings that a launcher stops, or begins anew: ``python -m tests.communicators.stopped wait FOLDER``."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import foldbatch as fb
from foldbatch.train import DataParallel, LambdaCallback
from foldbatch.train.resuming import read_state
from tests.train.small import DEV, EXAMPLES, model, trainer


def main(how: str, folder: Path) -> None:
    """Train slowly till a signal comes, or with ``kill`` end one rank at step 7 of the first attempt."""
    communicator = fb.communicators.find()
    first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"

    def look(made):
        if how == "wait":
            (folder / f"began-{communicator.rank}").touch()
            time.sleep(0.02)
        elif communicator.rank == 1 and made.steps == 7 and first_attempt:
            os.kill(os.getpid(), signal.SIGKILL)

    program = DataParallel(fb.compile(model(), "numpy", threads=1), communicator)
    callbacks = [LambdaCallback(on_step_end=look)]
    made = trainer(folder / "kept", program=program, every=1, callbacks=callbacks)
    last = folder / "kept" / "last.safetensors"
    begun_at = read_state(last)["steps"] if last.exists() else 0
    said = "done"
    try:
        made.fit(EXAMPLES, DEV, epochs=10_000 if how == "wait" else 3, resume=True)
    except (KeyboardInterrupt, SystemExit) as error:
        said = f"{type(error).__name__} {getattr(error, 'code', '')} after step {made.steps}"
    (folder / f"said-{communicator.rank}").write_text(f"{said}, begun at step {begun_at}")
    np.savez(folder / f"whole-{communicator.rank}", **made.program.params)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
