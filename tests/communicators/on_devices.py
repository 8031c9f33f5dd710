"""Train on a device a rank, with gradients added there and on the host: ``python -m tests.communicators.on_devices BACKEND``."""

import sys

import numpy as np

import foldbatch as fb
import tests.backends  # noqa: F401 - it knows the backend cuda-on-cpu
from foldbatch.train import DataParallel

WORDS = fb.Map(fb.Scalar("int32") >> fb.Embedding(30, 3, name="words")) >> fb.Sum()
HIDDEN = fb.Linear(4, name="hidden") >> fb.Function(fb.ops.tanh)
MODEL = WORDS >> HIDDEN >> fb.Linear(1, name="out") >> fb.Function(lambda x: fb.ops.mean(x * x)) >> fb.Loss()
EXAMPLES = [np.random.default_rng(n).integers(0, 30, size=n).tolist() for n in (9, 1, 4, 5, 2, 7, 3)]


def trained(
    backend: str, communicator: fb.communicators.Communicator, *, on_host: bool
) -> dict[str, np.ndarray]:
    program = fb.compile(MODEL, backend, fresh=True, seed=3)
    parallel, optimizer = DataParallel(program, communicator), fb.Adam(0.1)
    assert parallel._remote is not None
    if on_host:
        parallel._remote = None
    for step in range(6):
        _, gradients = parallel.value_and_grad(EXAMPLES[step % 3 :])
        optimizer.update(program.params, gradients)
    return {name: np.array(array) for name, array in program.params.items()}


def main(backend: str) -> None:
    communicator = fb.communicators.find()
    there, host = (trained(backend, communicator, on_host=on_host) for on_host in (False, True))
    for name, array in host.items():
        np.testing.assert_array_equal(there[name], array)
    print("the same bits")


if __name__ == "__main__":
    main(sys.argv[1])
