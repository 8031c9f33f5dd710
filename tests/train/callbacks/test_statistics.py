"""ParameterStatistics: norms, also of sparse rows and of large numbers. No engine runs."""

from __future__ import annotations

import numpy as np

from foldbatch.params import SparseRows
from foldbatch.train import ParameterStatistics
from foldbatch.train.shares import Batch
from tests.train.callbacks.tiny import Fake, through_json


def test_norms_are_by_name_and_of_the_mean():
    fake = Fake(ParameterStatistics())

    class Stands:
        params = {"w": np.array([[3e30, 4e30]], "float32"), "table": np.ones((4, 1), "float32")}

    fake.program = Stands
    rows = SparseRows(np.array([1, 3]), np.array([[6.0], [8.0]], "float32"), (4, 1))
    fake.batch = Batch([0, 1], ["a", "b"], 0.0, {"table": rows})
    fake.callback.on_step_end(fake)
    fake.run_epoch()
    assert fake.figures["norms"]["table"] == 2
    np.testing.assert_allclose(fake.figures["norms"]["w"], 5e30)
    assert fake.figures["gradient_norms"] == {"table": 5}
    again = ParameterStatistics()  # resumed between the last batch of an epoch and its end
    again.load_state(through_json(fake.callback.state()))
    fake.callback = again
    fake.run_epoch()
    assert fake.figures["gradient_norms"] == {"table": 5}
