"""Trackers: callbacks that write a training to TensorBoard, Weights & Biases or MLflow, by their libraries.

`Trainer.fit` makes one of a name, ``log_to="tensorboard"``. A library is imported where a tracker is made;
`BackendError` says where it is missing.
"""

import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.engines.pending import Pending
from foldbatch.errors import BackendError, FoldbatchError, TrainingError, install
from foldbatch.params.parameters import numbers_of
from foldbatch.program.program import Program
from foldbatch.train.metrics import flattened
from foldbatch.train.numbers import truth, whole_number
from foldbatch.train.optimizer import State
from foldbatch.train.resuming import LATE, settings
from foldbatch.train.trainer import Callback, Trainer
from foldbatch.views import graph, picture
from foldbatch.views.plots import Plot, image_of, is_installed
from foldbatch.views.shapes import as_plot

Numbers = dict[str, float]
PIECES = "gradients", "update", "between"  # of the time of a step
BINS = 64  # of a histogram
DRAWN_CALLS = 200  # calls of the schedule's picture, at most
FINISHED, FAILED = "finished", "failed"  # how a run ends


class Tracker(Callback):
    """The common base of trackers: what is written, and when; subclasses say how their library writes it.

    The x axis counts steps, over all epochs. A training that is resumed from a checkpoint goes on in the run
    that it began. Of several processes rank 0 writes. Put trackers behind callbacks that add figures.

    ==========================  ======================================================================
    name                        what
    ==========================  ======================================================================
    ``step/loss``               per example, a mean of the steps since the last one that was written
    ``step/lr``                 the learning rate
    ``step/examples_a_second``  of the time of steps, without validation
    ``time/gradients``          seconds of a step, from examples to gradients
    ``time/update``             seconds of a step, for callbacks and the update of parameters
    ``time/between``            seconds between two steps
    ``loss``, ...               the figures of each epoch, as in `Trainer.history`; ``f1/good`` by class
    ``parameters/NAME``         histograms
    ``gradients/NAME``          histograms, of the gradient of a batch's mean loss; of a sparse one its rows
    ``model``, ``schedule``     pictures: the cells, and how the first examples of the first batch run
    ==========================  ======================================================================

    The settings of training are hyper-parameters of the run, and the last figures are its results.

    Args:
        every: how many steps lie between two that are written.
        histograms: how many steps lie between histograms; 0 writes none.
        pictures: whether the model and a schedule are drawn, which needs matplotlib.
        configuration: further hyper-parameters, such as options of your script; nested ones get dots.
    """

    first_only = True
    library = ""  # to import
    extra = ""  # that installs it

    def __init__(
        self,
        *,
        every: int = 10,
        histograms: int = 100,
        pictures: bool = True,
        configuration: Mapping[str, object] | None = None,
    ) -> None:
        kind = type(self).__name__
        self.every = whole_number(f"{kind} every", every, 1, "it counts steps")
        self.histograms = whole_number(f"{kind} histograms", histograms, 0, "it counts steps; 0 writes none")
        self.pictures = truth(f"{kind} pictures", pictures)
        if configuration is not None and not isinstance(configuration, Mapping):
            actual = type(configuration).__name__
            raise TrainingError(
                f"{kind} configuration", "a dict of settings", actual, "for example vars(args)"
            )
        self.configuration = {} if configuration is None else dict(configuration)
        if not find_spec(self.library):
            raise BackendError(kind, f"the library {self.library}", "none", install(self.extra))
        if self.pictures and not is_installed():
            fix = f"{install('plot')}, or pictures=False"
            raise BackendError(f"{kind} pictures", "the library matplotlib", "none", fix)
        self.run: str | None = None  # the identifier of the run that is written to
        self._is_open = self._is_resumed = False
        self._outer: BaseException | None = None
        self._losses: deque[tuple[int, Any, int]] = deque()  # step, loss and examples of what is to be read
        self._read: tuple[int, float, int] = (
            0,
            0.0,
            0,
        )  # the last step that was read; sum and examples since the last writing
        self._seconds = dict.fromkeys(PIECES, 0.0)  # since the last writing
        self._counts = [0, 0]  # steps and examples since the last writing
        self._clock: float | None = None

    def open(self, hyperparameters: Mapping[str, object], step: int) -> None:
        """Begin a run, or go on in `self.run`, of which what was written after a step is no more."""
        raise NotImplementedError

    def write(self, numbers: Numbers, step: int) -> None:
        """Write numbers by name."""
        raise NotImplementedError

    def write_histograms(self, arrays: Mapping[str, NDArray[np.generic]], step: int) -> None:
        """Write the distributions of arrays by name, each of one finite number or more."""
        raise NotImplementedError

    def write_plot(self, name: str, plot: Plot, step: int) -> None:
        """Write a picture."""
        raise NotImplementedError

    def close(self, hyperparameters: Mapping[str, object], results: Numbers, status: str) -> None:
        """Write the results, and end the run as `FINISHED` or `FAILED`."""
        raise NotImplementedError

    def on_fit_start(self, trainer: Trainer) -> None:
        """Begin the run, or go on in it; nothing has been trained yet where that fails."""
        self._outer = sys.exception()
        self._losses.clear()
        if trainer.steps == 0 and not self._is_resumed:
            self.run = None  # that of another training
        self._is_resumed = False
        self._reset()
        self._read = trainer.steps, 0.0, 0
        try:
            self.open(self._hyperparameters(trainer), trainer.steps)
        except FoldbatchError:
            raise
        except Exception as error:
            kind, lines = type(self).__name__, str(error).splitlines() or [type(error).__name__]
            fix = f"see what {self.library} needs, or leave it out of log_to"
            raise TrainingError(
                kind, f"a run that {self.library} begins", lines[0].rstrip("."), fix
            ) from error
        self._is_open = True
        if self.pictures and trainer.steps == 0:
            self.write_plot("model", as_plot(*graph.shapes_of(trainer.program)), 0)

    def on_epoch_start(self, trainer: Trainer) -> None:
        self._clock = None

    def on_step_start(self, trainer: Trainer) -> None:
        """Draw how the first batch of a run runs; from here on the time counts."""
        self._tick("between")
        if self.pictures and trainer.steps == 0 and self._is_open:
            self._draw(trainer)
            self._clock = time.perf_counter()

    def on_gradients(self, trainer: Trainer) -> None:
        """Write histograms of the gradients of the batch's mean loss, where they are due."""
        self._tick("gradients")
        if self._is_due(trainer.steps + 1):
            batch = trainer.batch
            size = max(batch.size, 1)
            gradients = {name: numbers_of(gradient) / size for name, gradient in batch.gradients.items()}
            self._write_arrays("gradients", gradients, trainer.steps + 1)

    def on_step_end(self, trainer: Trainer) -> None:
        """Note the step, and write what is due."""
        if not self._is_open:  # a step outside of `fit`
            return
        self._tick("update")
        examples = trainer.batch.size
        self._losses.append((trainer.steps, trainer.batch.loss, examples))
        self._counts = [self._counts[0] + 1, self._counts[1] + examples]
        if trainer.steps % self.every == 0:
            self._write_steps(trainer)
        if self._is_due(trainer.steps):
            self._write_arrays("parameters", trainer.program.params, trainer.steps)
            self._clock = time.perf_counter()

    def on_epoch_end(self, trainer: Trainer) -> None:
        if self._counts[0]:
            self._write_steps(trainer, unread=0)
        self.write(_numbers(trainer.figures), trainer.steps)

    def on_interrupt(self, trainer: Trainer) -> None:
        if self._is_open and self._counts[0]:
            self._write_steps(trainer, unread=0)

    def on_fit_end(self, trainer: Trainer) -> None:
        """End the run: as failed where an error or a signal ended the `fit`."""
        if not self._is_open:
            return
        self._is_open = False
        status = FINISHED if sys.exception() is self._outer else FAILED
        self._outer = None
        self._losses.clear()
        self.close(self._hyperparameters(trainer), _numbers(trainer.figures), status)

    def state(self) -> State:
        return {"run": self.run}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Go on in the run of a checkpoint.

        Raises:
            TypeError: when the state names none.
        """
        run = state["run"]
        if not isinstance(run, str | None):
            raise TypeError(f"run is a {type(run).__name__}")
        self.run, self._is_resumed = run, True

    def _is_due(self, step: int) -> bool:
        """Return whether histograms are written at a step: also at the first one, to see where all began."""
        return self._is_open and self.histograms > 0 and (step == 1 or step % self.histograms == 0)

    def _tick(self, piece: str) -> None:
        """Add the time since the last call to a piece of the step."""
        now = time.perf_counter()
        if self._clock is not None:
            self._seconds[piece] += now - self._clock
        self._clock = now

    def _reset(self) -> None:
        self._seconds, self._counts = dict.fromkeys(PIECES, 0.0), [0, 0]

    def _write_steps(self, trainer: Trainer, unread: int = LATE) -> None:
        """Write the figures of steps; the losses of the last ones, which a device may still compute, stay."""
        retained = unread if self._losses and isinstance(self._losses[-1][1], Pending) else 0
        while len(self._losses) > retained:
            step, loss, examples = self._losses.popleft()
            self._read = step, self._read[1] + float(loss), self._read[2] + examples
        step, total, examples = self._read
        numbers = {"step/loss": total / examples} if examples else {}
        self._read = step, 0.0, 0
        if step < trainer.steps:
            self.write(numbers, step)
            numbers = {}
        steps, examples = self._counts
        numbers["step/lr"] = float(trainer.optimizer.lr)
        if seconds := sum(self._seconds.values()):
            numbers["step/examples_a_second"] = examples / seconds
        numbers |= {f"time/{piece}": self._seconds[piece] / steps for piece in PIECES}
        self.write(numbers, trainer.steps)
        self._reset()

    def _write_arrays(self, kind: str, arrays: Mapping[str, ArrayLike], step: int) -> None:
        """Write histograms of arrays; of numbers that are not finite, how many there are."""
        flat = {f"{kind}/{name}": np.asarray(array, np.float64).ravel() for name, array in arrays.items()}
        finite = {name: values[np.isfinite(values)] for name, values in flat.items()}
        odd = {f"not_finite/{name}": float(len(flat[name]) - len(finite[name])) for name in flat}
        if any(odd.values()):
            self.write({name: number for name, number in odd.items() if number}, step)
        self.write_histograms({name: values for name, values in finite.items() if len(values)}, step)

    def _draw(self, trainer: Trainer) -> None:
        """Write the picture of a schedule: of as many examples of the batch as it can show."""
        program, examples = trainer.program, trainer.batch.examples
        if program.lowered.decides:
            return  # its schedule is made in rounds, while it runs
        first, calls = [], 0
        for example in program.prepare(list(examples), progress=False):
            calls += example.trace.size
            if calls > DRAWN_CALLS:
                break
            first.append(example)
        if first:
            self.write_plot("schedule", as_plot(*picture.shapes_of(picture.picture(program, first))), 0)

    def _hyperparameters(self, trainer: Trainer) -> dict[str, object]:
        """Return the settings of a training by name: numbers, texts, and True or False."""
        texts = {f"optimizer.{name}": text for name, text in trainer._settings.items()}
        for callback in trainer.callbacks:
            if callback.steers:
                kind = type(callback).__name__
                texts |= {f"{kind}.{name}": text for name, text in settings(callback).items()}
        named: dict[str, Any] = {"optimizer": type(trainer.optimizer).__name__}
        named |= {"batch_size": trainer._size} if trainer._given_sampler is None else {}
        named |= {"accumulate": trainer.accumulate, "seed": trainer.sampler.seed}
        named |= {"backend": trainer.program.engine.name, "weights": weights_of(trainer.program)}
        named |= {name: _number_of(text) for name, text in texts.items()}
        for name, value in _dotted(self.configuration):
            named[name] = value if isinstance(value, bool | int | float) else str(value)
        return named


def weights_of(program: Program) -> int:
    """Return how many numbers a program's trainable parameters have."""
    return sum(parameter.type.size for parameter in program.params.parameters.values() if parameter.trainable)


def _numbers(figures: Mapping[str, object]) -> Numbers:
    return {
        name: float(value) for name, value in flattened(figures).items() if isinstance(value, int | float)
    }


def _dotted(options: Mapping[str, object], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings by names with dots, those of nested dicts, too."""
    for name, value in options.items():
        if isinstance(value, Mapping) and value:
            yield from _dotted(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _number_of(text: str) -> int | float | str:
    """Return the number that a text spells, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("'")


class TensorBoard(Tracker):
    """Writes a training to files of events that TensorBoard shows; see `Tracker`.

    By the library tensorboardX, which needs no TensorFlow and no PyTorch. ``tensorboard --logdir runs`` shows
    them. Hyper-parameters and results are on the page HPARAMS. A training that is resumed takes back what the
    interrupted one wrote after the checkpoint, and a new one in a folder of events takes back all of them.

    Args:
        folder: of the run; by default a new one in ``runs/tensorboard``, named by date and time.
        every, histograms, pictures, configuration: see `Tracker`.

    Raises:
        BackendError: when tensorboardX, or for pictures matplotlib, is not installed.
    """

    library = "tensorboardX"
    extra = "tensorboard"

    def __init__(self, folder: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.folder = None if folder is None else Path(folder)
        self._writer: Any = None

    def open(self, hyperparameters: Mapping[str, object], step: int) -> None:
        """Open a new file of events in the run's folder."""
        if self.folder is not None or self.run is None:
            self.run = str(_new_folder() if self.folder is None else self.folder)
        writer = import_module("tensorboardX").SummaryWriter
        # of two files of one second, too, the names differ
        number = len([*Path(self.run).glob("events.out.tfevents.*")])
        self._writer = writer(
            self.run, purge_step=step + 1 if step else 0, filename_suffix=f".{number}" if number else ""
        )

    def write(self, numbers: Numbers, step: int) -> None:
        """Write scalars."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def write_histograms(self, arrays: Mapping[str, NDArray[np.generic]], step: int) -> None:
        """Write histograms."""
        for name, values in arrays.items():
            self._writer.add_histogram(name, values, step, bins=BINS)

    def write_plot(self, name: str, plot: Plot, step: int) -> None:
        """Write an image."""
        self._writer.add_image(name, image_of(plot), step, dataformats="HWC")

    def close(self, hyperparameters: Mapping[str, object], results: Numbers, status: str) -> None:
        """Write the page of hyper-parameters, and close the file."""
        texts = {name: value for name, value in hyperparameters.items() if value is not None}
        if results and status == FINISHED:
            for summary in import_module("tensorboardX.summary").hparams(texts, results):
                self._writer.file_writer.add_summary(summary)
        self._writer.close()
        self._writer = None


def _new_folder() -> Path:
    """Return a folder that is not there yet, named by date and time."""
    name = time.strftime("%Y%m%d-%H%M%S")
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(path for name in names if not (path := Path("runs", "tensorboard", name)).exists())


class WandB(Tracker):
    """Writes a training to Weights & Biases; see `Tracker`.

    A run that your script has begun by ``wandb.init`` is used, and stays open.

    Args:
        project: by default what the environment or ``wandb`` says.
        options: further arguments of ``wandb.init``, such as ``{"mode": "offline", "tags": ["sst"]}``.
        every, histograms, pictures, configuration: see `Tracker`.

    Raises:
        BackendError: when wandb, or for pictures matplotlib, is not installed.
        TrainingError: in `fit`, before the first step, when wandb begins no run, as without a login.
    """

    library = extra = "wandb"

    def __init__(
        self, project: str | None = None, *, options: Mapping[str, object] | None = None, **tracking: Any
    ) -> None:
        super().__init__(**tracking)
        self.project = project
        self.options = {} if options is None else dict(options)
        self._run: Any = None
        self._hooks: tuple[Any, Any] = None, None  # that show uncaught errors: before the run, and within it
        self._is_ours = True

    def open(self, hyperparameters: Mapping[str, object], step: int) -> None:
        """Begin a run, go on in one, or take that of the user's script."""
        wandb = import_module("wandb")
        self._is_ours = wandb.run is None
        if wandb.run is not None:
            self._run = wandb.run
        else:
            again = {} if self.run is None else {"id": self.run, "resume": "allow"}
            named = {} if self.project is None else {"project": self.project}
            hook = sys.excepthook
            self._run = wandb.init(**{**named, **again, **self.options})
            self._hooks = hook, sys.excepthook
        self._run.config.update(dict(hyperparameters), allow_val_change=True)
        self._run.define_metric("*", step_metric="steps")
        self.run = str(self._run.id)

    def write(self, numbers: Numbers, step: int) -> None:
        """Write numbers, over an axis of steps."""
        self._run.log({**numbers, "steps": step})

    def write_histograms(self, arrays: Mapping[str, NDArray[np.generic]], step: int) -> None:
        """Write histograms."""
        histogram = import_module("wandb").Histogram
        drawn = {name: histogram(np_histogram=np.histogram(a, BINS)) for name, a in arrays.items()}
        self._run.log({**drawn, "steps": step})

    def write_plot(self, name: str, plot: Plot, step: int) -> None:
        """Write an image."""
        self._run.log({name: import_module("wandb").Image(image_of(plot)), "steps": step})

    def close(self, hyperparameters: Mapping[str, object], results: Numbers, status: str) -> None:
        """Write the results to the summary, and end a run that this tracker has begun."""
        self._run.summary.update(results)
        if self._is_ours:
            self._run.finish(exit_code=0 if status == FINISHED else 1)
            hook, of_wandb = self._hooks
            if sys.excepthook is of_wandb:  # which would show each later error of the script twice
                sys.excepthook = hook
        self._run = None


MAX_SETTING = 500  # characters of a setting in MLflow
QUANTILES = {"least": 0.0, "quarter": 0.25, "median": 0.5, "three_quarters": 0.75, "greatest": 1.0}


class MLflow(Tracker):
    """Writes a training to MLflow; see `Tracker`.

    MLflow has no histograms: five numbers of each distribution are metrics, from ``parameters/NAME/least`` to
    ``greatest``. Pictures are artifacts. A run that your script has begun by ``mlflow.start_run`` is used,
    and stays open. A setting that differs where training is resumed is a tag of the run.

    Args:
        experiment: its name, which is made if it is new.
        name: of the run; by default MLflow makes one up.
        uri: of the server or data base; by default what MLflow says, as by ``MLFLOW_TRACKING_URI``.
        every, histograms, pictures, configuration: see `Tracker`.

    Raises:
        BackendError: when mlflow, or for pictures matplotlib, is not installed.
        TrainingError: in `fit`, before the first step, when MLflow begins no run, as where no server answers.
    """

    library = extra = "mlflow"

    def __init__(
        self,
        experiment: str = "foldbatch",
        *,
        name: str | None = None,
        uri: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.experiment = experiment
        self.name = name
        self.uri = uri
        self._client: Any = None
        self._is_ours = True

    def open(self, hyperparameters: Mapping[str, object], step: int) -> None:
        """Begin a run, go on in one, or take that of the user's script; write the hyper-parameters."""
        mlflow = import_module("mlflow")
        self._client = client = mlflow.MlflowClient(self.uri)
        active = mlflow.active_run()
        self._is_ours = active is None
        if active is not None:
            self.run = str(active.info.run_id)
        elif self.run is None:
            experiment = client.get_experiment_by_name(self.experiment)
            number = experiment.experiment_id if experiment else client.create_experiment(self.experiment)
            self.run = str(client.create_run(number, run_name=self.name).info.run_id)
        else:
            client.update_run(self.run, status="RUNNING")
        written = client.get_run(self.run).data.params
        entities = import_module("mlflow.entities")
        texts = {_allowed(name): str(value)[:MAX_SETTING] for name, value in hyperparameters.items()}
        new = [entities.Param(name, text) for name, text in texts.items() if name not in written]
        client.log_batch(self.run, params=new)
        for name, text in texts.items():
            if written.get(name, text) != text:
                client.set_tag(self.run, f"resumed.{name}", text)

    def write(self, numbers: Numbers, step: int) -> None:
        """Write metrics."""
        now, metric = int(time.time() * 1000), import_module("mlflow.entities").Metric
        metrics = [metric(_allowed(name), value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self.run, metrics=metrics)

    def write_histograms(self, arrays: Mapping[str, NDArray[Any]], step: int) -> None:
        """Write five quantiles of each."""
        numbers: Numbers = {}
        for name, values in arrays.items():
            quantiles = np.quantile(values, list(QUANTILES.values())).tolist()
            numbers |= {f"{name}/{key}": q for key, q in zip(QUANTILES, quantiles, strict=True)}
        self.write(numbers, step)

    def write_plot(self, name: str, plot: Plot, step: int) -> None:
        """Write an artifact."""
        self._client.log_figure(self.run, plot.figure, f"{_allowed(name)}.png")

    def close(self, hyperparameters: Mapping[str, object], results: Numbers, status: str) -> None:
        """End a run that this tracker has begun; the last metrics are its results."""
        if self._is_ours:
            self._client.set_terminated(self.run, "FINISHED" if status == FINISHED else "FAILED")
        self._client = None


def _allowed(name: str) -> str:
    """Return a name with the signs alone that MLflow allows.

    >>> _allowed("parameters/tree[0].weight")
    'parameters/tree_0_.weight'
    """
    return re.sub(r"[^\w\-. /]", "_", name)
