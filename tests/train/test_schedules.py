"""Schedules: their formulas, and torch's schedulers where these exist. No engine runs."""

import numpy as np
import pytest

from foldbatch.train import schedules
from foldbatch.train.schedules import chained, cosine, exponential, one_cycle, stepwise, warm_up

N = 40


def factors(schedule):
    return np.array([schedule(count) for count in range(N)])


TORCH = {
    "stepwise": (stepwise(7, 0.3), lambda t, o: t.StepLR(o, 7, 0.3)),
    "exponential": (exponential(0.9), lambda t, o: t.ExponentialLR(o, 0.9)),
    "warm_up": (warm_up(10, 0.2), lambda t, o: t.LinearLR(o, 0.2, total_iters=10)),
    "cosine": (cosine(N, 0.1), lambda t, o: t.CosineAnnealingLR(o, N, eta_min=0.05)),
    "one_cycle": (one_cycle(N), lambda t, o: t.OneCycleLR(o, 0.5, N, cycle_momentum=False)),
    "chained": (
        chained([warm_up(5), stepwise(3)], [5]),
        lambda t, o: t.SequentialLR(o, [t.LinearLR(o, 0.1, total_iters=5), t.StepLR(o, 3)], [5]),
    ),
    "product": (
        schedules.product(warm_up(5), exponential(0.9)),
        lambda t, o: t.ChainedScheduler([t.LinearLR(o, 0.1, total_iters=5), t.ExponentialLR(o, 0.9)]),
    ),
}


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.filterwarnings("ignore")
def test_a_schedule_is_torchs(name):
    torch = pytest.importorskip("torch", reason="needs torch")
    schedule, make = TORCH[name]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.5)
    theirs = make(torch.optim.lr_scheduler, optimizer)
    rates = []
    for _ in range(N - 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    np.testing.assert_allclose(0.5 * factors(schedule)[:-1], rates, rtol=1e-9)
