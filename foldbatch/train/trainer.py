"""Trainer: epochs of batches through a program and an optimizer, with callbacks and checkpoints."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.communicators import Alone, from_first, together
from foldbatch.communicators.communicator import mark_as_shared, share
from foldbatch.engines.results import Result
from foldbatch.errors import (
    ExampleError,
    ProcessError,
    SlowPathWarning,
    TrainingError,
    UnknownNameError,
    counted,
    frames_inside,
    with_nearest,
)
from foldbatch.params.parameters import Array
from foldbatch.params.saved import KIND
from foldbatch.program.program import Program
from foldbatch.system import files
from foldbatch.system.closed import Closed
from foldbatch.system.files import locked, remove_partial
from foldbatch.system.late import LateSequence
from foldbatch.system.showing import Described
from foldbatch.train import checks, resuming
from foldbatch.train.history import History
from foldbatch.train.libraries import OutsideMetric
from foldbatch.train.metrics import Figure, Metric, Mode, figure_of, is_better, mode_of
from foldbatch.train.numbers import number, whole_number
from foldbatch.train.optimizer import Optimizer, State
from foldbatch.train.parallel import Batch, Cut, DataParallel, PreparedShare, check_alike, evaluate, in_parts
from foldbatch.train.pieces import Examples
from foldbatch.train.prefetching import Unasked, Waiting, asked_in_order
from foldbatch.train.readings import BatchFacts, Begin, HeldShares, StreamedShares, check_row, text_of_batch
from foldbatch.train.resuming import DIGEST, Facts, Interrupts, digest, digests, settings, text_of, traced
from foldbatch.train.samplers import Sampler, joined, shuffled
from foldbatch.train.shards import takes_rank
from foldbatch.train.streams import Stream, stream_of
from foldbatch.train.weights import ClassWeight, weights_of
from foldbatch.train.workers import END, Arrival, Reading, Workers
from foldbatch.trees.given import chosen
from foldbatch.types import describe_value

ASKED_AHEAD = 2  # batches that each worker is asked for ahead: one that it makes, and the next
DEFAULT_BATCH_SIZE = 32  # examples of a batch, where no size is set
AVERAGED = "validation_averaged_"  # begins the names of figures of averaged parameters
TRACES = "traces"  # of a record: of some trainings there are none
MODEL = "model"  # the note that says which model a file has
ENDING = ".safetensors"
# by the name that `log_to` has, the class of `foldbatch.train.trackers`, which needs a library
TRACKERS = {"tensorboard": "TensorBoard", "wandb": "WandB", "mlflow": "MLflow"}
Share: TypeAlias = "tuple[int | None, str]"  # rows of a rank, and a digest of the row that it read last
LogTo: TypeAlias = "str | Callback | Sequence[str | Callback]"
# what makes a callback for a trainer that is given others, or None
USUAL: list[Callable[[Sequence[Callback]], Callback | None]] = []


class Callback(Described):
    """Something that watches or steers a `Trainer`; every method does nothing until a subclass says what.

    Callbacks are called in the order in which they are given, `Checkpoints` last: it keeps what they did.

    A checkpoint holds what `state` returns. Where training is resumed from it, `load_state` is called before
    `on_fit_start`, with the state of the callback of the same class; of several in their order.
    Where several processes train together (`foldbatch.train.DataParallel`), each calls its callbacks, so that
    all steer alike.

    Attributes:
        first_only: whether rank 0 alone calls it, because it prints or writes files.
        steers: whether its settings and its state must be the same on all ranks, which is then checked.
        in_state: the names of attributes that its state has, numbers or None.
    """

    first_only = False
    steers = False
    in_state = tuple[str, ...]()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        moments = [name for name in vars(Callback) if name.startswith("on_")]
        for name in vars(cls):
            if name.startswith("on_") and name not in moments:  # it would never be called
                expected = f"a moment of {', '.join(moments)}"
                raise UnknownNameError(cls.__name__, expected, repr(name), "a batch is a step")

    def on_fit_start(self, trainer: Trainer) -> None:
        """Be called once, before the first epoch of a `fit`."""

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Be called before the first batch of an epoch; `trainer.epoch` counts epochs done.

        It is also called where training is resumed within an epoch; `trainer.position` has the batches done.
        """

    def on_step_start(self, trainer: Trainer) -> None:
        """Be called before a batch is run: `trainer.batch` has its examples."""

    def on_gradients(self, trainer: Trainer) -> None:
        """Be called between gradients and update: `trainer.batch` has loss and gradients."""

    def on_step_end(self, trainer: Trainer) -> None:
        """Be called after an update; `trainer.steps` counts it."""

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Be called after the last batch of an epoch and the validation set: `trainer.figures` has both."""

    def on_interrupt(self, trainer: Trainer) -> None:
        """Be called where Ctrl-C, SIGTERM or the end of another process ends a `fit`, between two steps.

        Then comes `on_fit_end`.
        """

    def on_fit_end(self, trainer: Trainer) -> None:
        """Be called once, after the last epoch, also where a callback or an error ended the `fit`."""

    def state(self) -> State:
        """Return the callback's state for a checkpoint: plain data and arrays, here those `in_state`."""
        return {name.strip("_"): getattr(self, name) for name in self.in_state}

    def must_match(self) -> dict[str, str]:
        """Return texts, by name, that a training which goes on with this one must have alike."""
        return {}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Set the callback's attributes from a state that `state` returned, when a training is resumed."""
        for name in self.in_state:
            kept = state[name.strip("_")]
            if not isinstance(kept, int | float | None):
                raise TypeError(f"{name} is a {type(kept).__name__}")
            setattr(self, name, kept)


class Checkpoints(Callback):
    """Keeps the state of a training in a folder, so that ``fit(..., resume=True)`` goes on from it.

    ``last.safetensors`` is written at the end of each epoch, and within epochs as often as is asked for; also
    when Ctrl-C or SIGTERM ends the `fit`. ``best.safetensors`` is the program after the best
    epoch, for `Trainer.restore_best` and `foldbatch.load`. A file is complete under its name, or the former
    one stays. The trainer calls this callback last. Of several processes rank 0 writes and reads files.

    Args:
        folder: is made if there is none.
        every: after how many steps a checkpoint is written; so at most as many steps are lost.
        seconds: after how many seconds one is written, when the step under way is done.
        monitor: the figure that says which epoch is the best, such as ``"validation_accuracy"``. If it begins
            with ``validation_averaged_``, the averages of `AverageWeights` are kept.
        mode: ``"min"`` where lower is better, or ``"max"``; by default what the figure's name says.
        keep: how many checkpoints of past epochs stay besides, as ``epoch-0012.safetensors``.

    Attributes:
        last: the path of the last checkpoint.
        best: the path of the program after the best epoch.
        best_figure: the best figure, or None.
        best_epoch: the number of its epoch, counted from 1, or None.

    >>> Checkpoints("runs/sst", every=100, monitor="validation_accuracy").last.name
    'last.safetensors'
    """

    in_state = "best_figure", "best_epoch"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every: int | None = None,
        seconds: float | None = None,
        monitor: str | None = None,
        mode: Mode | None = None,
        keep: int = 0,
    ) -> None:
        fix = "or leave it out"
        self.folder = Path(folder)
        self.every = None if every is None else whole_number("Checkpoints every", every, 1, fix)
        self.seconds = None if seconds is None else number("Checkpoints seconds", seconds, 0, fix=fix)
        self.monitor = monitor
        asked = monitor is not None or mode is not None
        self.mode = mode_of("Checkpoints", monitor or "", mode) if asked else None
        self.keep = whole_number("Checkpoints keep", keep, 0, fix)
        self.last = self.folder / f"last{ENDING}"
        self.best = self.folder / f"best{ENDING}"
        self.best_figure: float | None = None
        self.best_epoch: int | None = None
        self._steps = 0  # when the last checkpoint was written
        self._time = 0.0

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Make the folder and keep it from other trainings, within a ``with`` statement."""
        if self.folder.exists() and not self.folder.is_dir():
            raise TrainingError("Checkpoints folder", "a folder", f"the file {self.folder}", "name another")
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            yield

    def on_fit_start(self, trainer: Trainer) -> None:
        self._steps, self._time = trainer.steps, time.monotonic()
        if trainer.parallel.is_first:
            remove_partial(self.folder, [f"{name}{ENDING}" for name in ("last", "best", "epoch-*")])

    def on_step_end(self, trainer: Trainer) -> None:
        """Write the last checkpoint where `every` steps or `seconds` have passed since it was written."""
        if not trainer.fitting:
            return
        steps_over = self.every is not None and trainer.steps - self._steps >= self.every
        time_over = self.seconds is not None and time.monotonic() - self._time >= self.seconds
        if steps_over or time_over:
            self._write(trainer, self.last)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Write the best parameters where the monitored figure is the best yet, then the checkpoints."""
        if self.monitor is not None and self.mode is not None:
            value = figure_of("Checkpoints monitor", trainer.figures, self.monitor)
            if math.isfinite(value) and is_better(value, self.best_figure, self.mode):
                self.best_figure, self.best_epoch = value, trainer.epoch
                # first: a run killed before the checkpoint finds the same best again
                self._write_best(trainer)
        if self.keep and trainer.parallel.is_first:
            self._write(trainer, self._of_epoch(trainer.epoch))
            self._of_epoch(trainer.epoch - self.keep).unlink(missing_ok=True)
        self._write(trainer, self.last)

    def on_interrupt(self, trainer: Trainer) -> None:
        self._write(trainer, self.last)

    def restore_best(self, trainer: Trainer) -> None:
        """Give the parameters the values of the best epoch; of several processes rank 0 reads them."""
        best = self._read_best(trainer) if trainer.parallel.is_first else None
        resuming.assign(trainer.program.params, from_first(trainer.parallel.communicator, best))

    def _read_best(self, trainer: Trainer) -> dict[str, Array]:
        """Return the best parameters by name; refuse a file of another model."""
        if not self.best.exists():
            expected, fix = "a file of the best parameters", "fit with Checkpoints(monitor=)"
            raise TrainingError("restore_best", expected, f"no {self.best}", fix)
        arrays, header = files.read(self.best, KIND, "fit anew")
        notes = header.get("notes")
        params, model_digest = trainer.program.params, isinstance(notes, dict) and notes.get(MODEL)
        if model_digest != trainer.model_digest or not params.keys() <= arrays.keys():
            expected, fix = "the best parameters of this model", "give another folder"
            raise TrainingError(str(self.best), expected, "those of another", fix)
        return {name: arrays[name] for name in params}

    def _write_best(self, trainer: Trainer) -> None:
        """Save the program; with averages of parameters, if the best figure is one of averages."""
        if not trainer.parallel.is_first:
            return
        averages: dict[str, Array] = {}
        if self.monitor is not None and self.monitor.startswith(AVERAGED):
            for callback in trainer.callbacks:
                averages |= getattr(callback, "averages", {})
        notes = {"figure": self.monitor, "value": self.best_figure, "epoch": self.best_epoch}
        with resuming.exchanged(trainer.program.params, averages):
            trainer.program.save(self.best, notes | {MODEL: trainer.model_digest})

    def _write(self, trainer: Trainer, path: Path) -> None:
        if trainer.parallel.is_first:
            resuming.write_state(path, trainer._state())
        self._steps, self._time = trainer.steps, time.monotonic()

    def _of_epoch(self, number: int) -> Path:
        return self.folder / f"epoch-{number:04}{ENDING}"


def in_order(callbacks: Iterable[Callback]) -> list[Callback]:
    """Return callbacks as they are called: `Checkpoints` last, to keep what others did."""
    return sorted(callbacks, key=lambda callback: isinstance(callback, Checkpoints))


def tracker_class(name: str) -> Callable[..., Callback]:
    """Return the class of a tracker of `TRACKERS`; its module is imported when one is asked for."""
    kind: Callable[..., Callback] = getattr(import_module("foldbatch.train.trackers"), TRACKERS[name])
    return kind


def _listed(log_to: LogTo) -> list[str | Callback]:
    """Return the trackers of an argument that has one or several."""
    if isinstance(log_to, str | Callback) or not isinstance(log_to, Iterable):
        return [log_to]  # what is neither is refused
    return list(log_to)


class Trainer(Closed):
    """Fits a program's parameters to examples, evaluates them, and predicts.

    Args:
        program: whose parameters are trained; a `foldbatch.train.DataParallel` of it where several processes
            train together.
        optimizer: what changes them; the loss of a batch is divided by its number of examples.
        batch_size: how many examples make a batch, 32 by default.
        sampler: makes the batches instead; see `foldbatch.train.samplers`.
        metrics: figures of the values that `Metric` blocks collect; see `foldbatch.train.metrics`. Metrics of
            torchmetrics may be among them as they are, where the model has one such block.
        callbacks: called meanwhile, in order, `Checkpoints` last; `Progress` too where a person looks on.
        seed: from which epochs are shuffled.
        accumulate: how many batches make one update. Their gradients are added, so that the update is that of
            one batch as large as all of them, in the memory that one of them needs; a step, for callbacks,
            figures and checkpoints, is such an update.
        workers: how many processes read, trace and plan the batches of a `fit` ahead; results stay the same.
            Each holds the examples, which pickle, or opens the stream. Validation is for this process. A
            script that fits runs under ``if __name__ == "__main__":`` then.

    Attributes:
        program: whose parameters are trained.
        parallel: the processes that train it; one by default.
        epoch: how many epochs are done.
        epochs: how many are wanted in the end.
        steps: how many updates are done, in all epochs.
        batches: how many the epoch under way has; None where a stream has not been read to its end yet.
        position: how far it has come.
        batch: the batch under way.
        figures: those of the last epoch: ``loss``, a mean of the sums over examples, ``seconds``, and
            ``validation_loss`` and ``validation_NAME`` for each metric.
        history: the figures of all epochs, a `History`; ``history.plot()`` draws them.
        stopped: why training stopped before its last epoch, or None.
        sampler: that of the present `fit`.
        record: what it began with, as far as it was looked at.
        fitting: whether a `fit` is under way.

    Raises:
        TrainingError: when an argument does not fit, two metrics have one name, or there are no examples.
        UnknownNameError: when the model has no `Metric` block of the name that a metric asks for.
        ExampleError: when an example does not fit the model, which needs labels for its losses.

    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Record((fb.Scalar(), fb.Scalar())) >> fb.Function(lambda x, y: (w * x - y) ** 2)
    >>> trainer = Trainer(fb.compile(error >> fb.Loss()), fb.SGD(0.1), batch_size=2)
    >>> figures = trainer.fit([(1, 2), (2, 4), (3, 6)], epochs=20)
    >>> float(trainer.program.params["w"].round(3)), len(figures)
    (2.0, 20)
    """

    settable = {"metrics": None}  # noqa: RUF012 - `fit` looks at them

    def __init__(
        self,
        program: Program | DataParallel,
        optimizer: Optimizer,
        *,
        batch_size: int | None = None,
        sampler: Sampler | None = None,
        metrics: Sequence[Metric | OutsideMetric] = (),
        callbacks: Sequence[Callback] = (),
        seed: int = 0,
        accumulate: int = 1,
        workers: int = 0,
    ) -> None:
        if not isinstance(program, DataParallel):
            fix = "fb.compile(block) makes one"
            program = DataParallel(checks.instance_of("program", program, Program, "a program", fix), Alone())
        self.parallel = program
        self.program = program.program
        fix = "for example fb.Adam()"
        self.optimizer = checks.instance_of("optimizer", optimizer, Optimizer, "an optimizer", fix)
        callbacks = checks.all_of("callbacks", callbacks)
        for place, callback in enumerate(callbacks):
            fix = "give an instance of a class derived from fb.train.Callback"
            checks.instance_of(f"callbacks[{place}]", callback, Callback, "a callback", fix)
        if sampler is not None:
            fix = "for example fb.train.bucketed(examples, batch_size=25)"
            checks.instance_of("sampler", sampler, Sampler, "a sampler", fix)
            if batch_size is not None:
                expected, actual = "the sampler to make batches", f"batch_size={batch_size!r} as well"
                raise TrainingError("Trainer sampler", expected, actual, "leave out batch_size")
        self.metrics = checks.check_metrics(self.program, metrics, learnt=False)
        callbacks = [*callbacks, *(usual for make in USUAL if (usual := make(callbacks)) is not None)]
        self.callbacks = in_order(callbacks)
        self._trackers: dict[str, Callback] = {}  # that `log_to` has named
        self.epoch = self.epochs = self.steps = 0
        self.batches: int | None = 0
        self.position = resuming.Position()
        self.batch = Batch([], [])
        self.figures: dict[str, Figure] = {}
        self.history = History()
        self.stopped: str | None = None
        self.fitting = False
        self._size = (
            DEFAULT_BATCH_SIZE if batch_size is None else whole_number("Trainer batch_size", batch_size, 1)
        )
        self.accumulate = whole_number("Trainer accumulate", accumulate, 1)
        self.workers = whole_number("Trainer workers", workers, 0, "0 prepares batches in this process")
        self._workers: Workers | None = None  # of the present `fit`
        self._given_sampler = sampler
        self._seed = seed
        self._began = 0.0  # when the epoch under way would have begun, had it not been interrupted
        self._interrupts = Interrupts()
        self._settings = settings(optimizer)
        self.sampler = shuffled((), self._size, seed)  # of the present `fit`
        self._weights: NDArray[np.float32] | None = None  # of its examples
        self._streams: dict[str, Stream] = {}  # among its examples
        self._repeatable = False  # whether each reading of its first rows gave the same
        self._row_before = ""  # the digest of the row read last when a checkpoint was written
        # of a stream that ranks read in parts: of each rank, how many rows it has, and the digest of its last
        self._shares: list[Share] = []
        self.record: resuming.Record = {}

    def __repr__(self) -> str:
        return f"Trainer({self.program!r}, {self.optimizer!r}, {counted(self.epoch, 'epoch')} done)"

    def fit(
        self,
        examples: Examples,
        validation: Examples | None = None,
        *,
        epochs: int,
        resume: bool | str | os.PathLike[str] = False,
        log_to: LogTo = (),
        sample_weight: ArrayLike | None = None,
        class_weight: ClassWeight | None = None,
    ) -> History:
        """Train until so many epochs are done, or a callback stops it; return the figures of all epochs.

        A resumed training gives, to the last bit, what one without a break gives, on the same backend and
        machine with the same settings. One that a callback had stopped is not continued.

        Ctrl-C and SIGTERM end it when the step under way is done, with a checkpoint if there is a
        `Checkpoints` callback; then they raise KeyboardInterrupt and SystemExit. The second signal ends it
        at once.

        Args:
            examples: to train on. What can be iterated again, but has neither length nor items, and data sets
                of Arrow on disk are read anew in each epoch, and never held: see `foldbatch.train.Stream`. A
                generator, which can be read once, is made a list.
            validation: to evaluate after each epoch; of the same kinds.
            epochs: how many epochs are done in the end, with those of earlier calls.
            resume: True goes on from the last checkpoint of the `Checkpoints` callback, or begins anew if
                there is none. A path goes on from that checkpoint.
            log_to: where figures, histograms and pictures go: ``"tensorboard"``, ``"wandb"``, ``"mlflow"``, a
                `foldbatch.train.TensorBoard`, `WandB`, `MLflow` or another callback, or a list of these. A
                later call that gives the same goes on in the same run; so does one that is resumed.
            sample_weight: how much each example counts in training, ``[N]``: one of weight 2 as two of
                weight 1. The losses of an example, and the figure ``loss``, are multiplied by its weight over
                the mean of all; figures of the validation set are not.
            class_weight: the weights of examples by class: a dict from labels, or ``"balanced"``. Labels are
                those of trees' roots, the second of pairs, or a record's key ``label``. With `sample_weight`
                both are multiplied.

        Raises:
            UnknownNameError: when `log_to` has another name.
            BackendError: when the library of a tracker is not installed.
            TrainingError: when weights do not fit the examples, or come with a stream; when a sampler was
                made for another number of examples; when a stream has another number of rows than in an
                earlier epoch; when the checkpoint is one
                of other examples, another model, optimizer, sampler or vocabulary; when another training
                writes to the folder of `Checkpoints`; when parameters, settings, examples or their order are
                not the same in all processes that train together, which is looked at before the first epoch,
                after each, and at the end.
            ReadError: when the checkpoint is damaged.
            ProcessError: when a process that trains with this one has failed or ended; `Checkpoints` has then
                written where to go on from.

        The arguments, the first example of each set and the checkpoint are looked at before anything changes.
        """
        with together(self.parallel.communicator):
            epochs = whole_number("Trainer fit epochs", epochs, 0)
            trackers = [self._tracker(entry) for entry in _listed(log_to)]
            self.epochs = epochs
            training = checks.fitting_examples(self.program, "examples", self._shard(examples))
            if validation is not None:
                of_rank = self._shard(validation, self.parallel.communicator.size)
                validation = checks.fitting_examples(self.program, "validation", of_rank)
            self.metrics = checks.check_metrics(self.program, self.metrics)
            if isinstance(training, Stream):
                self._check_streamed(sample_weight, class_weight)
                sampler, self._weights = shuffled((), self._size, self._seed), None
            else:
                sampler = self._sampler_for(training)
                self._weights = weights_of(training, sample_weight, class_weight)
            self._repeatable, self._row_before = False, ""
            self._shares = [(None, "")] * self.parallel.communicator.size
            self._streams = {
                name: of
                for name, of in (("examples", training), ("validation examples", validation))
                if isinstance(of, Stream)
            }
            with self._folder_kept(), self._called_as_well(trackers):
                kept = from_first(self.parallel.communicator, self._kept(resume))
                self.sampler = sampler
                self.position, self.stopped, self._began = resuming.Position(), None, time.perf_counter()
                kept_by = any(isinstance(callback, Checkpoints) for callback in self.callbacks)
                if kept_by or resume is not False or not self.parallel.is_alone:  # else no record is needed
                    self.record = self._beginning(training, () if validation is None else validation)
                if kept is not None:
                    with resuming.taking_over(*kept):
                        self._take_over(*kept)
                alike = {"number of epochs": str(self.epochs)}
                alike["metrics"] = text_of([metric.name for metric in self.metrics])
                self._compare(self.record | alike)
                with self._working(training):
                    history = self._fit(training, validation)
                self._compare()  # of one process, errors of the last callbacks reach the others, and changes
            return history

    def _shard(self, examples: Examples, size: int | None = None) -> Examples:
        """Return the rows that this rank reads, where examples are a stream that ranks read in parts.

        `size` is how many rows of all ranks make a batch, by default that of training.
        """
        stream, communicator = stream_of(examples), self.parallel.communicator
        if stream is None:
            return examples
        part = stream.shard(communicator.rank, communicator.size, size or self._size * self.accumulate)
        if part.ranks > 1 and self.workers and size is None:
            expected, actual = "a stream that each rank reads as a whole", "one that ranks read in parts"
            fix = "give Stream(source, sharded=False), or leave workers out"
            raise TrainingError("Trainer workers", expected, actual, fix)
        return part

    def _tracker(self, entry: str | Callback) -> Callback:
        """Return the tracker of a name, the same at each call, or the callback that is one."""
        if isinstance(entry, Callback):
            return entry
        if not isinstance(entry, str):
            fix = "write log_to='tensorboard', or a list"
            raise TrainingError("fit log_to", "a name or a callback", describe_value(entry), fix)
        if entry not in TRACKERS:
            raise UnknownNameError(
                "fit log_to", f"one of {', '.join(TRACKERS)}", with_nearest(entry, TRACKERS)
            )
        if entry not in self._trackers:
            self._trackers[entry] = tracker_class(entry)()
        return self._trackers[entry]

    @contextmanager
    def _called_as_well(self, trackers: Sequence[Callback]) -> Iterator[None]:
        """Call trackers, too, within a ``with`` statement: after other callbacks, before `Checkpoints`."""
        before = self.callbacks
        new = [tracker for tracker in trackers if tracker not in before]
        self.callbacks = in_order([*before, *new])
        try:
            yield
        finally:
            self.callbacks = before

    @contextmanager
    def _working(self, training: Sequence[object] | Stream) -> Iterator[None]:
        """Have workers that prepare the batches of a `fit`, within a ``with`` statement."""
        if not self.workers or self.epoch >= self.epochs or self.stopped is not None:
            yield
            return
        if self.program.lowered.decides:
            expected, actual = (
                "a model whose calls follow from examples",
                "one that asks for computed numbers",
            )
            warning = SlowPathWarning(
                "Trainer workers", expected, actual, "this process prepares all batches"
            )
            warn(warning, stacklevel=frames_inside())
            yield
            return
        group = self.parallel.communicator
        cut = Cut(group.rank, group.size, self.accumulate)
        reading: Reading
        if isinstance(training, Stream):
            size = self._size * self.accumulate
            reading = StreamedShares(cut, training, self._seed, size, self._repeatable)
        else:
            reading = HeldShares(cut, training)
        self._workers = Workers(
            self.program, reading, self.workers, ASKED_AHEAD * self.workers, "Trainer workers"
        )
        try:
            yield
        finally:
            self._workers.close()
            self._workers = None

    def _fit(
        self, training: Sequence[object] | Stream, held_out: Sequence[object] | Stream | None
    ) -> History:
        """Run the epochs that remain, with callbacks around them; return the history."""
        with Interrupts() as self._interrupts:
            self.fitting = True
            try:
                self._call("on_fit_start")
                while self.epoch < self.epochs and self.stopped is None:
                    self._run_epoch(training, held_out)
                    with self._written_where_others_end():
                        self._agree_to_stop()
                    self._look()
            except (KeyboardInterrupt, SystemExit) as error:
                if self._interrupts.raised:  # so between two steps
                    mark_as_shared(error)
                    self._call("on_interrupt")
                raise
            finally:
                self.fitting = False
                self._call("on_fit_end")
        return self.history

    def step(self, examples: Sequence[object]) -> float:
        """Train on one batch; return the sum of its losses. Callbacks are called as in `fit`.

        >>> w = fb.Parameter([], init=3.0, name="w")
        >>> product = fb.Scalar() >> fb.Function(lambda x: w * x)
        >>> trainer = Trainer(fb.compile(product >> fb.Loss()), fb.SGD(1.0))
        >>> trainer.step([1, 2]), trainer.program.params["w"]
        (9.0, array(1.5, dtype=float32))
        """
        listed_examples = list(checks.examples_of(examples))
        batch = Batch(list(range(len(listed_examples))), listed_examples)
        with together(self.parallel.communicator):
            self._step(batch, resuming.Position(), None)
        return batch.loss

    def evaluate(self, examples: Examples) -> dict[str, Figure]:
        """Return the ``loss`` per example and each metric by its name."""
        with together(self.parallel.communicator):
            return self._evaluate(examples, lambda: None)

    def predict(self, examples: Examples) -> list[Result]:
        """Return the program's result for each example; labels are not needed."""
        return [result for part in in_parts(examples) for result in self.program.run(part)]

    def stop(self, reason: str) -> None:
        """Stop after the epoch under way; callbacks call it."""
        self.stopped = reason

    def restore_best(self) -> None:
        """Give the parameters the values of the best epoch, which a `Checkpoints` callback keeps.

        Raises:
            TrainingError: when there is no such callback, or it keeps no best parameters.
            ReadError: when the file is damaged.
        """
        with together(self.parallel.communicator):
            self._checkpoints("restore_best").restore_best(self)

    def seconds(self) -> float:
        """Return for how many seconds the epoch under way has been trained."""
        return time.perf_counter() - self._began

    @cached_property
    def model_digest(self) -> str:
        """The digest of the program's computation, for checkpoints."""
        return resuming.model_digest(self.program)

    def _model(self) -> str:
        """Return the model as it is now: decisions may have brought cells since a training began."""
        return DIGEST + resuming.model_digest(self.program)

    def _sampler_for(self, examples: Sequence[object]) -> Sampler:
        """Return the user's sampler, checked against the number of examples, or a shuffling one."""
        if self._given_sampler is None:
            return shuffled(examples, self._size, self._seed)
        if len(self._given_sampler.costs) != len(examples):
            actual = f"one of {len(self._given_sampler.costs)}"
            fix = "make it of the examples that are given to fit"
            raise TrainingError("Trainer sampler", f"a sampler of {len(examples)} examples", actual, fix)
        return self._given_sampler

    def _check_streamed(self, sample_weight: ArrayLike | None, class_weight: ClassWeight | None) -> None:
        """Refuse what needs all examples at once, which a stream does not have."""
        expected, actual = "a list of examples", "a stream"
        if self._given_sampler is not None:
            fix = "leave the sampler out: fb.train.Stream(source, shuffle=) mixes rows"
            raise TrainingError("Trainer sampler", expected, actual, fix)
        for name, weights in (("sample_weight", sample_weight), ("class_weight", class_weight)):
            if weights is not None:
                fix = "let the model multiply its loss by a field of the row"
                raise TrainingError(f"fit {name}", expected, actual, fix)

    def _batches_of(self, examples: Sequence[object] | Stream) -> Callable[[int], Iterable[Batch]]:
        """Return the function that yields the batches of an epoch, for steps that leave no trace."""
        if isinstance(examples, Stream):
            self._check_streamed(None, None)
            size = self._size * self.accumulate
            return lambda epoch: itertools.starmap(Batch, examples.epoch(self._seed, epoch, size))
        sampler = self._sampler_for(examples)
        return lambda epoch: (
            Batch(places, chosen(examples, places))
            for places in joined(sampler.epoch(epoch), self.accumulate)
        )

    def _kept(self, resume: bool | str | os.PathLike[str]) -> tuple[dict[str, object], str] | None:  # noqa: FBT001
        """Return the state and path of the checkpoint to resume from, or None to start anew."""
        if resume is False:
            return None
        if resume is not True:
            fix = "resume=True goes on from the checkpoint of Checkpoints"
            checks.instance_of("fit resume", resume, str | os.PathLike, "True, False or a path", fix)  # type: ignore[arg-type]
        path = self._checkpoints("fit resume").last if resume is True else Path(resume)
        wanted = self.parallel.is_first and (resume is not True or os.path.lexists(path))
        return (resuming.read_state(path), str(path)) if wanted else None

    def _state(self) -> dict[str, object]:
        """Return the state of the training that a checkpoint holds."""
        position = self.position
        return {
            "record": self.record | {"model": self._model()},
            "parameters": dict(self.program.params),
            "optimizer": self.optimizer.state(),
            "steps_drawn": self.program.steps_drawn,
            "epoch": self.epoch,
            "steps": self.steps,
            "position": {
                "batches": position.batches,
                "examples": position.examples,
                "loss": position.read(),
                "seconds": self.seconds(),
            },
            "history": list(self.history),
            "stopped": self.stopped,
            "callbacks": {name: state for name, callback in self._named() if (state := callback.state())},
            "streams": {
                name: {
                    "rows": stream.of.rows if stream.ranks == 1 else None,
                    "last": self._row_digest(stream) if name == "examples" else "",
                    "ranks": stream.ranks,
                    "shares": self._shares if name == "examples" and stream.ranks > 1 else [],
                }
                for name, stream in self._streams.items()
            },
        }

    def _row_digest(self, stream: Stream) -> str:
        """Return a digest of the row that was read last, "" where rows are others in each reading."""
        if self._workers is not None:
            return self.batch.last
        return digest(stream.last).hex() if self._repeatable else ""

    def _check_row(self, row: object) -> None:
        """Refuse a stream that has another row where the one of the checkpoint had read its last."""
        check_row(row, self._row_before, self.position.batches)

    def _take_over(self, state: Mapping[str, Any], where: str) -> None:
        """Stand where another trainer was when it returned a state, which is refused if it was unlike."""
        record, kept = self.record, state.get("record")
        if kept is None:
            actual = "one of an earlier version of foldbatch"
            raise TrainingError(where, "a checkpoint that says what it began with", actual, "start anew")
        kept = {**resuming.FORMER_SETTINGS, **kept}
        new = record["model"] != kept["model"] or state["parameters"].keys() - self.program.params.keys()
        if new and self.program.lowered.decides:
            expected, actual = "a checkpoint of a training of this model", "one whose walk knew other cells"
            fix = "what it decides may have brought some: reach all of them by program.warm before each fit"
            raise TrainingError(where, expected, actual, fix)
        unlike = self._unlike(state, where) | {TRACES} - (record.keys() & kept.keys())
        names = [name for name in {**kept, **record} if name not in unlike]
        records = [{name: of[name] for name in names if name in of} for of in (kept, record)]
        if actual := resuming.differences(records, ["in the checkpoint", "here"]):
            fix = "resume with what it began with, words numbered as they were, or give another folder"
            raise TrainingError(where, "a checkpoint of this training", actual, fix)
        self.optimizer.load_state(state["optimizer"])
        resuming.assign(self.program.params, state["parameters"])
        self.program.steps_drawn = state["steps_drawn"]
        self.epoch, self.steps = state["epoch"], state["steps"]
        self.position = resuming.Position(**state["position"])
        self.history, self.stopped = History(state["history"]), state["stopped"]
        self.figures = self.history[-1] if self.history else {}
        for name, stream in self._streams.items():
            if (kept_stream := state.get("streams", {}).get(name)) is not None:
                self._expect(stream, kept_stream, name)
        for name, callback in self._named():
            if name in state["callbacks"]:
                callback.load_state(state["callbacks"][name])

    def _unlike(self, state: Mapping[str, Any], where: str) -> set[str]:
        """Return the names of entries of a record that tell of other parts of streams than ranks read now.

        Raises:
            TrainingError: when they read others than those that ranks read in the epoch under way.
        """
        unlike = set()
        for name, stream in self._streams.items():
            parts = state.get("streams", {}).get(name, {}).get("ranks", 1)
            if parts == stream.ranks:
                continue
            if name == "examples" and state["position"]["batches"]:
                expected = f"the ranks that began the epoch: a stream read in {counted(parts, 'part')}"
                fix = "go on with as many ranks until the epoch ends"
                raise TrainingError(where, expected, f"one in {counted(stream.ranks, 'part')}", fix)
            if takes_rank(stream.source):
                unlike |= {name, TRACES}  # of the first rank, which has other rows now
        return unlike

    def _expect(self, stream: Stream, kept: Mapping[str, Any], name: str) -> None:
        """Let a stream have the rows that it had when a checkpoint was written.

        Raises:
            TrainingError: when it has not.
        """
        rows, last, shares = kept["rows"], kept["last"], kept.get("shares", [])
        if stream.ranks > 1:
            rows, last = shares[stream.rank] if len(shares) == stream.ranks else (None, "")
        if rows is not None:
            stream.expect(rows)
        if name == "examples":
            self._row_before, self._shares = last, list(map(tuple, shares)) or self._shares

    def _beginning(
        self, training: Sequence[object] | Stream, held_out: Sequence[object] | Stream
    ) -> resuming.Record:
        """Return the record that all ranks, and a resumed training, must begin with as well.

        Of a stream it has what its first rows are, and how many rows its files say that there are.
        """
        record: resuming.Record = {}
        sampler = f"of seed {self.sampler.seed} and digest {self.sampler.digest()}"
        if isinstance(training, Stream):
            sampler = f"a stream's of seed {self._seed}, size {self._size} and buffer {training.shuffle}"
            training, self._repeatable = resuming.first_rows(training.of)
        if isinstance(held_out, Stream):
            held_out, _ = resuming.first_rows(held_out.of)
        for name, stream in self._streams.items():
            record[f"rows of {name}"] = text_of(None if stream.is_own else stream.of.counted)
        traces = traced(self.program, training)  # first: a walk learns of what it is made
        for callback in self.callbacks:
            record |= callback.must_match()
        record |= {"model": self._model(), "optimizer": type(self.optimizer).__name__}
        record |= {f"optimizer's {name}": text for name, text in self._settings.items()}
        record["batches of an update"] = text_of(self.accumulate)
        record["sampler"] = sampler
        rows = {"examples": digests(training), "validation examples": digests(held_out)}
        if len(traces):
            rows[TRACES] = traces
        for name in self._streams:
            if self._streams[name].is_own:  # ranks have other rows: those of the first one tell of the data
                parts = [name, TRACES] if name == "examples" else [name]
                rows |= from_first(self.parallel.communicator, {of: rows[of] for of in parts if of in rows})
        if self._weights is not None:
            record["weights of examples"] = DIGEST + digest(self._weights).hex()
        return record | {name: resuming.in_record(of) for name, of in rows.items()}

    def _named(self) -> Iterator[tuple[str, Callback]]:
        """Yield callbacks with the names of their classes, numbered from the second of a class on."""
        counts: Counter[str] = Counter()
        for callback in self.callbacks:
            kind = type(callback).__name__
            yield f"{kind}_{counts[kind]}" if counts[kind] else kind, callback
            counts[kind] += 1

    @contextmanager
    def _folder_kept(self) -> Iterator[None]:
        with ExitStack() as stack:
            for callback in self.callbacks if self.parallel.is_first else ():
                if isinstance(callback, Checkpoints):
                    stack.enter_context(callback.keeping())
            yield

    def _checkpoints(self, where: str) -> Checkpoints:
        for callback in self.callbacks:
            if isinstance(callback, Checkpoints):
                return callback
        fix = "give Trainer callbacks=[fb.train.Checkpoints(folder)]"
        raise TrainingError(where, "a trainer that keeps checkpoints", "none", fix)

    def _streamed(self, stream: Stream) -> Iterator[Batch]:
        """Yield the rest of the epoch's batches of a stream; all ranks look whether they read the same."""
        completed, size = self.position.batches, self._size * self.accumulate
        remainder: Iterator[Batch]
        if self._workers is None:
            rows = stream.epoch(self._seed, self.epoch, size, completed, self._check_row)
            if stream.ranks > 1:
                yield from self._joined(stream, rows)
                return
            remainder = itertools.starmap(Batch, rows)
        else:
            remainder = self._of_stream(self._workers, stream)
        for place in itertools.count(completed + 1):
            batch = next(remainder, Batch([], []))
            if not self.parallel.is_alone:  # a rank whose rows end early would leave the others waiting
                name = f"batch {place} of epoch {self.epoch + 1}"
                text = batch.text or text_of_batch(batch.indices, batch.examples)
                check_alike(self.parallel.communicator, {name: text})
            if not batch.indices:
                return
            yield batch

    def _of_stream(self, workers: Workers, stream: Stream) -> Iterator[Batch]:
        """Yield the rest of the epoch's batches of a stream, which workers read and plan."""
        completed, size = self.position.batches, self._size * self.accumulate
        workers.begin(Begin(self.epoch, completed, stream.rows, self._row_before))
        count = size * completed
        for arrival in self._arriving(workers, workers.ask):
            facts: BatchFacts = arrival.facts
            count += len(facts.indices)
            yield self._batch_of(arrival, facts.indices, arrival.examples)
        stream.expect(count)

    def _of_list(
        self, workers: Workers, examples: Sequence[object], batches: Sequence[list[int]]
    ) -> Iterator[Batch]:
        """Yield batches of a list, which workers plan."""
        workers.begin()
        tasks = iter(batches)

        def ask() -> Waiting:
            return Unasked(END) if (indices := next(tasks, None)) is None else workers.ask(indices)

        for indices, arrival in zip(batches, self._arriving(workers, ask), strict=True):
            yield self._batch_of(arrival, indices, partial(chosen, examples, indices))

    def _arriving(self, workers: Workers, ask: Callable[[], Waiting]) -> Iterator[Arrival]:
        """Yield batches as workers send them; where one has ended by a signal to all, raise that."""
        try:
            yield from asked_in_order(ask, ASKED_AHEAD * self.workers)
        except ProcessError:
            self._interrupts.look()
            raise

    def _weights_of(self, indices: list[int]) -> NDArray[np.float32] | None:
        return None if self._weights is None else self._weights[indices]

    def _batch_of(
        self, arrival: Arrival, indices: list[int], examples: Callable[[], Sequence[object]]
    ) -> Batch:
        """Return a batch that a worker has sent."""
        facts: BatchFacts = arrival.facts
        weights = self._weights_of(indices)
        prepared = None if arrival.plans is None else PreparedShare(facts.places, arrival.plans)
        later = LateSequence(len(indices), examples)
        return Batch(indices, later, weights=weights, prepared=prepared, last=facts.last, text=facts.text)

    def _joined(self, stream: Stream, remainder: Iterator[tuple[list[int], list[object]]]) -> Iterator[Batch]:
        """Yield the batches whose parts ranks read, until no rank has rows left: all ranks have as many."""
        communicator = self.parallel.communicator
        while True:
            indices, rows = next(remainder, ([], []))
            read = len(rows), (stream.rows, self._row_digest(stream))
            counts, shares = zip(*share(communicator, read), strict=True)
            self._shares = list(shares)
            if not sum(counts):
                return
            yield Batch(indices, rows, first=sum(counts[: communicator.rank]), of_ranks=sum(counts))

    def _chosen(self, examples: Sequence[object], batches: Sequence[list[int]]) -> Iterator[Batch]:
        """Yield the rest of the epoch's batches of a list; all ranks look whether they have the same."""
        if not self.parallel.is_alone:
            name = f"order of examples in epoch {self.epoch + 1}"
            check_alike(self.parallel.communicator, {name: DIGEST + digest(batches).hex()})
        if self._workers is not None:
            yield from self._of_list(self._workers, examples, batches[self.position.batches :])
            return
        for indices in batches[self.position.batches :]:
            weights = self._weights_of(indices)
            yield Batch(indices, chosen(examples, indices), weights=weights)

    def _run_epoch(
        self, examples: Sequence[Any] | Stream, validation: Sequence[object] | Stream | None
    ) -> None:
        """Train on the rest of the epoch's batches, evaluate, and note the figures."""
        position = self.position
        if isinstance(examples, Stream):
            remainder = self._streamed(examples)
            self.batches = examples.batches(self._size * self.accumulate)
        else:
            batches = joined(self.sampler.epoch(self.epoch), self.accumulate)
            remainder, self.batches = self._chosen(examples, batches), len(batches)
        self._began = time.perf_counter() - position.seconds
        self._call("on_epoch_start")
        with self._written_where_others_end():
            for batch in remainder:
                try:
                    self._step(batch, position, batch.indices)
                except ExampleError as error:
                    # else each part counts its examples anew
                    if isinstance(examples, Stream) and self.accumulate == 1:
                        is_share = batch.first is not None
                        places = (
                            range(len(batch.indices)) if is_share else self.parallel.places(batch.examples)
                        )
                        examples.name_row(error, [batch.indices[place] for place in places])
                    raise
                position.read(late=True)  # a GPU has the next steps to do meanwhile
                self._look()
            loss = position.read() / max(position.examples, 1)  # a GPU is waited for here
            figures = {"epoch": self.epoch + 1, "loss": loss, "seconds": self.seconds()}
            if validation is not None:
                validation_figures = self._evaluate(validation, self._look)
                figures |= {f"validation_{name}": value for name, value in validation_figures.items()}
            self._compare()  # before callbacks keep what differs
        self.epoch, self.position, self._began = self.epoch + 1, resuming.Position(), time.perf_counter()
        self.figures = figures
        self.history.append(figures)
        self._call("on_epoch_end")

    def _evaluate(self, examples: Examples, between: Callable[[], None]) -> dict[str, Figure]:
        metrics = checks.check_metrics(self.program, self.metrics, learnt=False)
        return evaluate(self.parallel, metrics, examples, lambda: self._interrupts.noted, between)

    def _step(self, batch: Batch, position: resuming.Position, indices: Sequence[int] | None) -> None:
        """Train on a batch; errors of its examples tell their indices, if there are any."""
        self.batch = batch
        self._call("on_step_start")
        noted, parts = self._interrupts.noted, self.accumulate
        batch.loss, batch.gradients = self.parallel.sum_of(
            batch.examples, indices, noted, parts, batch.weights, batch.first, batch.prepared
        )
        self._call("on_gradients")
        count = batch.size
        scale = 1 / max(count, 1)
        self.optimizer.update(self.program.params, batch.gradients, scale=scale, loss=batch.loss)
        self.steps += 1
        position.add(batch.loss, batch.indices, count)
        self._call("on_step_end")

    def _call(self, moment: str) -> None:
        for callback in self.callbacks:
            if self.parallel.is_first or not callback.first_only:
                getattr(callback, moment)(self)

    def _facts(self) -> Facts:
        """Return the progress, and settings and states of the optimizer and of callbacks that steer it."""
        kind = type(self.optimizer).__name__
        facts = {"optimizer": kind, "epoch": str(self.epoch), "steps": str(self.steps)}
        parts: dict[str, Any] = {"optimizer's": self.optimizer}
        parts |= {f"{type(callback).__name__}'s": callback for callback in self.callbacks if callback.steers}
        for name, part in parts.items():
            part_facts = settings(part) | {key: text_of(value) for key, value in part.state().items()}
            facts |= {f"{name} {key}": text for key, text in part_facts.items()}
        return facts

    def _compare(self, record: Mapping[str, Any] = MappingProxyType({})) -> None:
        if not self.parallel.is_alone:  # all raise a `TrainingError` where something differs
            self.parallel.check_same({**record, **self._facts()})

    def _look(self) -> None:
        """Raise the exception of a signal: of several processes all raise it at the same step."""
        self._interrupts.look(None if self.parallel.is_alone else self.parallel.signal)

    def _agree_to_stop(self) -> None:
        if not self.parallel.is_alone:
            reasons = self.parallel.agree(self.stopped, self._interrupts.noted)
            self.stopped = next((reason for reason in reasons if reason is not None), None)

    @contextmanager
    def _written_where_others_end(self) -> Iterator[None]:
        """Write a checkpoint of the last step that is done, where another process has failed or ended."""
        try:
            yield
        except ProcessError as error:
            self._call("on_interrupt")
            paths = [
                callback.last
                for callback in self.callbacks
                if isinstance(callback, Checkpoints) and callback.last.exists()
            ]
            fix = f"go on from {paths[0]} with resume=True, or --resume" if paths else error.fix
            raise ProcessError(error.where, error.expected, error.found, fix) from error
