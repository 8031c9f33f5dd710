"""Which launcher runs a batch: as the user names it, or as the model of cost says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from foldbatch.engines.cuda.barriers import waits
from foldbatch.engines.cuda.captured import Captured
from foldbatch.engines.cuda.choice import Choice, choice_lines, choose
from foldbatch.engines.cuda.control import Call, Ops
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.launching import Arranged, Launched, Launcher
from foldbatch.engines.cuda.persistent import Persistent
from foldbatch.engines.cuda.rates import Rates, rates_of
from foldbatch.engines.cuda.tiles import tile_kernels
from foldbatch.engines.cuda.work import planned_of, works_of
from foldbatch.engines.launch import Ints
from foldbatch.engines.report import Captures

NO_CLASS = "no capacity classes yet: program.fit_capacities(examples) learns them"
NO_GRAPH = "no graph fits the batch"
CALLS = 64  # batches that differ by fewer are alike


class Chosen(NamedTuple):
    """Calls arranged by one of two launchers; see `foldbatch.engines.cuda.launching.Arranged`."""

    launcher: Launcher
    arranged: Arranged

    @property
    def records(self) -> Ints:
        """The records of the calls."""
        return self.arranged.records


class Choosing:
    """Launches each batch as the model of cost says; see `foldbatch.engines.cuda.launching.Launcher`.

    Args:
        device: where.
        kernels: of the phase.
        ops: of these kernels.
        asked: ``captured``, ``persistent`` or ``auto``.
        precision: of products of float32.

    Attributes:
        choice: the one of the last batch, or None.
    """

    def __init__(
        self, device: Device, kernels: Sequence[Kernel], ops: Ops, asked: str, precision: str = "fp32"
    ) -> None:
        self.choice: Choice | None = None
        self._device = device
        self._kernels = kernels
        self._ops = ops
        self._asked = asked
        self._precision = precision
        self._choices: dict[tuple[int, int, tuple[str, ...]], Choice] = {}
        self._failed: dict[str, str] = {}  # launchers that could not be made, and why

    @cached_property
    def _tiles(self) -> str:
        return tile_kernels(self._kernels, self._precision)

    @cached_property
    def captured(self) -> Captured:
        """Runs batches by graphs."""
        return Captured(self._device, self._kernels, self._ops, self._tiles)

    @cached_property
    def persistent(self) -> Persistent:
        """Runs batches by one kernel a direction."""
        return Persistent(self._device, self._kernels, self._ops, self._tiles, self._is_wide)

    @cached_property
    def _rates(self) -> Rates:
        driver = self._device.driver
        return rates_of(driver.name, driver.multiprocessors)

    def _is_wide(self, call: Call) -> bool:
        return self.choice is not None and self.choice.engine == "persistent" and self.choice.is_wide(call)

    def arranged(self, forward: Sequence[Call], backward: Sequence[Call], numbers: Ints) -> Chosen | None:
        """Return calls arranged by one of the launchers; None where they run straight."""
        lacking = dict(self._failed)
        graph = None
        if self._asked != "persistent" and "captured" not in lacking:
            graph = self.captured.arranged(forward, backward)
            if graph is None:
                lacking["captured"] = NO_GRAPH if self.captured.classes else NO_CLASS
        calls = [*forward, *backward]
        idle = 0 if graph is None else len(graph.records) - len(calls)
        self.choice = choice = self._chosen(calls, numbers, lacking, idle)
        if choice.engine == "captured" and graph is not None:
            return Chosen(self.captured, graph)
        if choice.engine != "persistent":
            return None
        try:
            return Chosen(self.persistent, self.persistent.arranged(forward, backward))
        except Exception as error:  # nobody has asked for it, so what a card lacks must not end the training
            if self._asked != "auto":
                raise
            self._failed["persistent"] = f"{type(error).__name__}: {error}"
            return self.arranged(forward, backward, numbers)

    def launch(self, arranged: Chosen, launched: Launched) -> int:
        """Run calls by the launcher that was chosen."""
        return arranged.launcher.launch(arranged.arranged, launched)

    def _chosen(self, calls: Sequence[Call], numbers: Ints, lacking: Mapping[str, str], idle: int) -> Choice:
        """Return the choice for a batch; batches that are alike have one: the model takes milliseconds."""
        key = sum(call.blocks for call in calls).bit_length(), len(calls) // CALLS, tuple(lacking.values())
        if key not in self._choices:
            works = works_of(self._ops, calls, self._kernels, numbers)
            barriers = [*waits(calls, self._ops, self._kernels)[1:], False]
            self._choices[key] = choose(
                works,
                self._rates,
                asked=self._asked,
                precision=self._precision,
                idle=idle,
                barriers=barriers,
                planned=planned_of(works),
                lacking=lacking,
            )
        return self._choices[key]

    # -- what is learned, see `foldbatch.capacities`

    def learn(self) -> None:
        """Learn capacities from the batches that were made ready."""
        if self._asked != "persistent":
            self.captured.learn()

    def wait(self) -> None:
        """Wait until the graphs that were asked for are captured."""
        if self._asked != "persistent":
            self.captured.wait()

    def captures(self) -> Captures:
        """Return what was learned, how many batches fitted, and why the last batch was launched as it was."""
        found = Captures((), 0, {}, ()) if self._asked == "persistent" else self.captured.captures()
        lines = () if self.choice is None else tuple(choice_lines(self.choice))
        return found._replace(reasons=(*lines, *found.reasons))


def launcher_of(
    engine: str, device: Device, kernels: Sequence[Kernel], ops: Ops, precision: str = "fp32"
) -> Any:
    """Return what launches the batches of a phase; None where each kernel is launched by itself.

    The CPU that stands for a GPU gains nothing by fewer launches: there ``auto`` is straight.
    """
    if engine == "straight" or (engine == "auto" and device.driver.multiprocessors == 1):
        return None
    return Choosing(device, kernels, ops, engine, precision)
