"""A plugin of pytest: all programs of all tests run on a driver that records, guards and delays.

``FOLDBATCH_BACKEND=cuda-on-cpu python -m pytest -p tests.engines.cuda.checking`` runs tests on it. A test fails where
its record has a fault. ``FOLDBATCH_ORDER`` is one of `checked.ORDERS`, else ``late``; ``FOLDBATCH_HIDES=1`` hides from
a launch what it does not say to touch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.engines.cuda.checked import recorder, recording


@pytest.fixture(autouse=True)
def _checked() -> Iterator[None]:
    order, hides = os.environ.get("FOLDBATCH_ORDER", "late"), os.environ.get("FOLDBATCH_HIDES") == "1"
    with recording(recorder(order, hides=hides)):
        yield
