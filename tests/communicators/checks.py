"""What every communicator does, checked on each of its ranks."""

import numpy as np

from foldbatch.communicators import from_first, share


def check(communicator) -> None:
    rank, size = communicator.rank, communicator.size

    def own(number):
        return np.full(3 * number, 10 + number, np.uint8)  # rank 0 gives nothing

    for sizes in (None, [3 * number for number in range(size)]):
        gathered = communicator.all_gather(own(rank), sizes)
        assert [part.tolist() for part in gathered] == [own(number).tolist() for number in range(size)]
    parts = [np.full(2 + to, 16 * rank + to, np.uint8) for to in range(size)]
    sizes = [len(part) for part in parts]
    received = [part.tolist() for part in communicator.all_to_all(np.concatenate(parts), sizes)]
    assert received == [[16 * sender + rank] * (2 + rank) for sender in range(size)]
    nothing = communicator.all_to_all(np.zeros(0, np.uint8), [0] * size)
    assert [len(part) for part in nothing] == [0] * size
    assert share(communicator, {"rank": rank}) == [{"rank": number} for number in range(size)]
    assert from_first(communicator, f"of {rank}") == "of 0"
