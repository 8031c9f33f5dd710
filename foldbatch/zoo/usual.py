"""How models of records are trained where nobody says otherwise: settings by the number of examples.

They were chosen on development parts of five sets of records, jointly: none is tuned for a set. See
docs/accuracy.md.
"""

from typing import NamedTuple

import numpy as np

SEEN = 12_000  # examples that training sees in all epochs, if few epochs of many examples do not exceed it
EPOCHS = (3, 40)  # the fewest and the most
BATCHES = ((500, 16), (8_000, 32), (32_000, 64))  # sizes of batches, for up to so many examples
BATCH_OF_MANY = 128


class Usual(NamedTuple):
    """Settings of a training of records."""

    epochs: int
    batch_size: int
    dropout: float  # of hidden layers, and of the vector that is classified
    lr: float = 0.01  # of AdamW, the highest of one cycle: it rises, and falls to zero
    weight_decay: float = 0.05
    size: int = 64  # of the vectors of places


def usual(count: int, *, numbers: bool = False) -> Usual:
    """Return the settings for so many examples: of few ones, training sees each more often.

    Where the answers are `numbers`, nothing is dropped: the answer would have its noise.

    >>> usual(100)[:3], usual(2_000)[:3], usual(100_000, numbers=True)[:3]
    ((40, 16, 0.5), (6, 32, 0.5), (3, 128, 0.0))
    """
    epochs = int(np.clip(SEEN // max(count, 1), *EPOCHS))
    size = next((size for limit, size in BATCHES if count <= limit), BATCH_OF_MANY)
    return Usual(epochs, size, 0.0 if numbers else 0.5)
