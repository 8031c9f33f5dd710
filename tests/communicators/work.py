"""What processes that a launcher started do in tests: ``python -m tests.communicators.work FOLDER``."""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import foldbatch as fb
from foldbatch.errors import ProcessError
from foldbatch.train import DataParallel, LambdaCallback
from tests.communicators.checks import check
from tests.train.small import DEV, EXAMPLES, model, trainer


def fitted(communicator, folder=None, *, at_step_7=None, resume=False):
    program = DataParallel(fb.compile(model(), "numpy", threads=1), communicator)

    def look(made):
        if at_step_7 is not None and communicator.rank == 1 and made.steps == 7:
            os.kill(os.getpid(), at_step_7)

    callbacks = [LambdaCallback(on_step_end=look)]
    made = trainer(folder, program=program, every=1, callbacks=callbacks)
    try:
        made.fit(EXAMPLES, DEV, epochs=3, resume=resume)
    except SystemExit as error:
        return made, f"exit {error.code} after step {made.steps}"
    except ProcessError as error:
        return made, str(error)
    return made, "done"


def main(folder: Path) -> None:
    communicator = fb.communicators.find()
    check(communicator)
    rank = communicator.rank
    made, said = fitted(communicator)
    np.savez(folder / f"whole-{rank}", **made.program.params)
    _, interrupted = fitted(communicator, folder / "interrupted", at_step_7=signal.SIGTERM)
    (folder / f"said-{rank}.txt").write_text(f"{said}\n{interrupted}\n")
    _, killed = fitted(communicator, folder / "killed", at_step_7=signal.SIGKILL)
    (folder / f"killed-{rank}.txt").write_text(killed)


def assert_trained(folder: Path, alone) -> None:
    """Look at what two processes left: the same bits, and checkpoints from which one process goes on."""
    first, second = (np.load(folder / f"whole-{rank}.npz") for rank in (0, 1))
    for name, array in alone.program.params.items():
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], array, rtol=2e-5, atol=1e-6)
    for rank in (0, 1):  # the signal of one, noted at step 7, is agreed upon in the next step
        assert (folder / f"said-{rank}.txt").read_text() == "done\nexit 143 after step 8\n"
    for part in ("interrupted", "killed"):
        made, _ = fitted(fb.communicators.Alone(), folder / part, resume=True)
        assert made.steps == alone.steps
        for name, array in alone.program.params.items():
            np.testing.assert_allclose(made.program.params[name], array, rtol=2e-5, atol=1e-6)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
