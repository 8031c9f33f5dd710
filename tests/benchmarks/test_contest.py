"""Who computes something else is caught before anything is timed; who takes part takes turns."""

from dataclasses import replace

import pytest

from benchmarks.contest import INFER, TRAIN, Contender, contest, verify
from foldbatch.errors import FoldbatchError


class Toy:
    """Counts what it is asked; its loss halves with every step."""

    def __init__(self, name: str, order: list[str], seconds: float = 2.0) -> None:
        self.loss, self.order, self.seconds = 8.0, order, seconds
        self.contender = Contender(name, lambda k: self.loss + k, self.train, self.infer)

    def train(self, numbers) -> float:
        self.order.append(f"{self.contender.name} train {numbers}")
        self.loss /= 2
        return self.seconds

    def infer(self, numbers) -> float:
        self.order.append(f"{self.contender.name} infer {numbers}")
        return self.seconds / 2


def test_the_same_losses_pass() -> None:
    """To rounding; before and after a step."""
    toy = Toy("x", [])
    verify(toy.contender, {0: 8.0, 1: 9.0 * (1 + 9e-5)}, (1, 5.0))
    assert toy.order == ["x train [1]"]


@pytest.mark.parametrize(
    ("losses", "after", "message"),
    [
        ({0: 8.0, 1: 9.01}, 5.0, "benchmarks, x: expected a loss of 9.010000, found 9.000000"),
        ({0: 8.0}, 5.01, "x, after a training step: expected a loss of 5.010000, found 5.000000"),
        ({0: float("nan")}, 5.0, "expected a loss of nan"),
    ],
)
def test_another_loss_is_refused(losses, after, message) -> None:
    with pytest.raises(FoldbatchError, match=message):
        verify(Toy("x", []).contender, losses, (1, after))


def test_a_peer_that_does_not_learn_is_refused() -> None:
    """Its loss before training alone would let it pass."""
    toy = replace(Toy("x", []).contender, train=lambda _: 0.0)
    with pytest.raises(FoldbatchError, match="after a training step"):
        verify(toy, {0: 8.0}, (0, 4.0))


def test_contenders_take_turns() -> None:
    """Training, inference, the next; then what else there is. The first turn warms up, the last batch each run."""
    order: list[str] = []
    toys = [Toy("x", order).contender, Toy("y", order, 4.0).contender]
    found = contest(toys, [5, 6], 2, {"other": lambda: order.append("other") or 3.0})
    runs = ["x train [5, 6]", "x infer [5, 6]", "y train [5, 6]", "y infer [5, 6]"]
    turn = [step for run in runs for step in (run.replace("5, ", ""), run)]
    assert order == turn + [*turn, "other"] * 2
    assert (found.busy, found.failed) == ({}, {})
    assert found.further == {"other": [3.0, 3.0]}
    assert found.quiet["y"][TRAIN].median == 2.0  # a batch's
    assert found.quiet["y"][INFER].median == 1.0
    assert found.quiet["x"][TRAIN].runs == 2
