"""Trainings on parts of streams, in ranks that are threads or processes: ``python -m tests.train.sharding FOLDER``."""

import sys
from pathlib import Path

import numpy as np

import foldbatch as fb
from foldbatch.train import Callback, ClipGradients, DataParallel, LambdaCallback, Stream
from tests.train.small import DEV, model, trainer

rng = np.random.default_rng(5)
ROWS = [(x, int(x[0] > x[1])) for x in rng.normal(size=(100, 3)).tolist()]
NUMBERS = {tuple(x): number for number, (x, _) in enumerate(ROWS)}


def numbers_of(examples) -> list[int]:
    return [NUMBERS.get(tuple(x), -1) for x, _ in examples]


def uneven(rank: int, ranks: int):
    """Open the rows of a rank: the first one has a fifth of them, the last one the rest."""
    cuts = [0, *(20 + 10 * place for place in range(ranks - 1)), len(ROWS)]
    return iter(ROWS[cuts[rank] : cuts[rank + 1]])


class Seen(Callback):
    """Notes the rows of each batch that this rank has read, and how many all ranks have."""

    def __init__(self):
        self.rows, self.sizes = [], []

    def on_step_start(self, trainer):
        self.rows.append(numbers_of(trainer.batch.examples))
        self.sizes.append(trainer.batch.size)


def fitted(
    communicator, source, folder=None, *, epochs=2, stop=None, resume=False, validation=DEV, **options
):
    """Train, with what depends on the places and the number of a batch's examples; return trainer and rows."""
    seen = Seen()

    def look(made):
        if made.steps == stop:
            raise KeyboardInterrupt

    callbacks = [seen, ClipGradients(0.2), LambdaCallback(on_step_start=look)]
    program = DataParallel(fb.compile(model(), "numpy", threads=1), communicator)
    options = {"batch_size": 8, "callbacks": callbacks, **options}
    made = trainer(folder, program=program, every=1, **options)
    try:
        made.fit(source, validation, epochs=epochs, resume=resume)
    except (KeyboardInterrupt, fb.errors.ProcessError):
        if stop is None:
            raise
    return made, seen


def main(folder: Path) -> None:
    communicator = fb.communicators.find()
    files = folder / "files"
    sources = {"function": lambda: Stream(uneven, shuffle=9)}
    if files.exists():
        from pyarrow import dataset  # noqa: PLC0415 - where there are files, it is installed

        rows = lambda: Stream(dataset.dataset(files), shuffle=9).map(lambda row: (row["x"], row["label"]))  # noqa: E731
        sources["files"] = rows
    for name, source in sources.items():
        made, seen = fitted(communicator, source())
        fitted(communicator, source(), folder / "kept" / name, stop=9)
        resumed, _ = fitted(communicator, source(), folder / "kept" / name, resume=True)
        counts = np.array([len(rows) for rows in seen.rows])
        arrays = {f"whole {key}": array for key, array in made.program.params.items()}
        arrays |= {f"resumed {key}": array for key, array in resumed.program.params.items()}
        arrays |= {"counts": counts, "rows": np.concatenate(seen.rows), "sizes": np.array(seen.sizes)}
        np.savez(folder / f"{name}-{communicator.rank}", **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
