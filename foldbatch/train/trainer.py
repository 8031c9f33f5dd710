"""Trainer: epochs of batches through a program and an optimizer, watched by callbacks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from foldbatch.communicators import Alone, from_first, together
from foldbatch.communicators.sharing import told
from foldbatch.errors import ProcessError, TrainingError
from foldbatch.program import Program
from foldbatch.train import checkpoint
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.callbacks.checkpoints import Checkpoints
from foldbatch.train.checks import (
    NUMBERED,
    all_of,
    check_count,
    check_metrics,
    fitting_examples,
    instance_of,
    noting,
    several,
)
from foldbatch.train.contents import digest
from foldbatch.train.evaluating import evaluate, in_parts
from foldbatch.train.facts import DIGEST, beginning_of, facts_of, settings, text_of
from foldbatch.train.interrupts import Interrupts
from foldbatch.train.metrics import Metric
from foldbatch.train.optimizer import Optimizer
from foldbatch.train.parallel import DataParallel
from foldbatch.train.parallel.agreement import check_alike
from foldbatch.train.resuming import Origin, Position, model_digest, take_over
from foldbatch.train.samplers import Sampler, shuffled
from foldbatch.train.shares import Batch, Share, share_of, shares
from foldbatch.trees.records import Records

BATCH = 32  # examples of a batch, where nobody says how many


class Trainer:
    """Fits a program's parameters to examples, evaluates them, and predicts.

    Args:
        program: whose parameters are trained; a `foldbatch.train.DataParallel` of it where several processes
            train together.
        optimizer: what changes them; the loss of a batch is divided by its number of examples.
        batch: how many examples make a batch, 32 by default.
        sampler: makes the batches instead; see `foldbatch.train.samplers`.
        metrics: figures of the values that `Metric` blocks collect; see `foldbatch.train.metrics`.
        callbacks: what is called meanwhile, in this order, but `Checkpoints` last.
        seed: from which epochs are shuffled.
        ahead: how many batches a thread plans ahead; see `foldbatch.train.prefetched`. It changes no result.
            It pays where a callback waits for each loss, or other processes are waited for. Else the host
            plans the next batch while a device computes, without a thread.

    Attributes:
        program: whose parameters are trained.
        parallel: the processes that train it; one by default.
        epoch: how many epochs are done.
        epochs: how many are wanted in the end.
        steps: how many updates are done, in all epochs.
        batches: how many the epoch under way has.
        position: how far it has come.
        batch: the batch under way.
        figures: those of the last epoch: ``loss`` per example, ``seconds``, and ``dev_loss`` and
            ``dev_NAME`` for each metric.
        history: the figures of all epochs.
        stopped: why training stopped before its last epoch, or None.
        sampler: makes the batches of the present `fit`.
        examples: how many it trains on.
        origin: what the present `fit` began with, as far as it was looked at.
        fitting: whether a `fit` is under way.

    Raises:
        TrainingError: when an argument is of the wrong type or out of range, or two metrics have one name.
        UnknownNameError: when the model has no `Metric` block of the name that a metric asks for.

    >>> import foldbatch as fb
    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Record((fb.Scalar(), fb.Scalar())) >> fb.Function(lambda x, y: (w * x - y) ** 2)
    >>> trainer = Trainer(fb.compile(error >> fb.Loss()), fb.SGD(0.1), batch=2)
    >>> figures = trainer.fit([(1, 2), (2, 4), (3, 6)], epochs=20)
    >>> float(trainer.program.params["w"].round(3)), len(figures)
    (2.0, 20)
    """

    def __init__(
        self,
        program: Program | DataParallel,
        optimizer: Optimizer,
        *,
        batch: int | None = None,
        sampler: Sampler | None = None,
        metrics: Sequence[Metric] = (),
        callbacks: Sequence[Callback] = (),
        seed: int = 0,
        ahead: int = 0,
    ) -> None:
        if not isinstance(program, DataParallel):
            fix = "fb.compile(block) makes one"
            program = DataParallel(instance_of("program", program, Program, "a program", fix), Alone())
        self.parallel = program
        self.program = program.program
        self.optimizer = instance_of(
            "optimizer", optimizer, Optimizer, "an optimizer", "for example fb.Adam()"
        )
        callbacks = all_of("callbacks", callbacks)
        for number, callback in enumerate(callbacks):
            fix = "give an instance of a class derived from fb.train.Callback"
            instance_of(f"callbacks[{number}]", callback, Callback, "a callback", fix)
        if sampler is not None:
            fix = "for example fb.train.bucketed(examples, batch=25)"
            instance_of("sampler", sampler, Sampler, "a sampler", fix)
            if batch is not None:
                found = f"batch={batch!r} as well"
                raise TrainingError(
                    "Trainer sampler", "the sampler to make batches", found, "leave out batch"
                )
        self.metrics = check_metrics(self.program, metrics)
        self.callbacks = sorted(callbacks, key=lambda callback: isinstance(callback, Checkpoints))
        self.epoch = 0
        self.epochs = 0
        self.steps = 0
        self.batches = 0
        self.position = Position()
        self.batch = Batch([], [])
        self.figures: dict[str, Any] = {}
        self.history: list[dict[str, Any]] = []
        self.stopped: str | None = None
        self.fitting = False
        self._size = BATCH if batch is None else check_count("batch", batch, 1)
        self._given_sampler = sampler
        self._seed = seed
        self._ahead = check_count("ahead", ahead, 0)
        self._began = 0.0  # when the epoch under way would have begun, had it not been interrupted
        self._interrupts = Interrupts()
        self._settings = settings(optimizer) | {"lr": text_of(optimizer.lr)}
        self.sampler = shuffled((), self._size, seed)  # of the present `fit`
        self.examples = 0  # how many it trains on
        self.origin = Origin()

    def fit(
        self,
        examples: Iterable[Any],
        dev: Iterable[Any] | None = None,
        *,
        epochs: int,
        resume: bool | str | os.PathLike[str] = False,
    ) -> list[dict[str, Any]]:
        """Train until so many epochs are done, or a callback stops it; return the figures of all epochs.

        A resumed training gives, to the last bit, what one without a break gives, on the same backend and
        machine with the same settings. One that a callback had stopped is not continued.

        Ctrl-C and SIGTERM end it when the step under way is done, with a checkpoint if there is a
        `Checkpoints` callback; then they raise KeyboardInterrupt and SystemExit. The second signal ends it
        at once.

        Args:
            examples: to train on; what has no length is made a list.
            dev: to evaluate after each epoch.
            epochs: how many epochs are done in the end, with those of earlier calls.
            resume: True goes on from the last checkpoint of the `Checkpoints` callback, or begins anew if
                there is none. A path goes on from that checkpoint.

        Raises:
            TrainingError: when there are no examples, or a sampler was made for another number of them; or
                when the checkpoint is one of other examples, another model, optimizer, sampler or vocabulary;
                when another training writes to the folder of `Checkpoints`; when parameters, settings,
                examples or their order are not the same in all processes that train together, which is
                looked at before the first epoch, after each, and at the end.
            ExampleError: when an example does not fit the model, which needs labels for its losses.
            ReadError: when the checkpoint is damaged.
            ProcessError: when a process that trains with this one has failed or ended; `Checkpoints` has then
                written where to go on from.

        The arguments, the first example of each set and the checkpoint are looked at before anything changes.
        """
        with together(self.parallel.communicator):
            self.epochs = check_count("fit epochs", epochs, 0)
            training = fitting_examples(self.program, "examples", examples)
            held_out = None if dev is None else fitting_examples(self.program, "dev", dev)
            sampler = self._sampler_for(training)
            with self._folder_kept():
                kept = from_first(self.parallel.communicator, self._kept(resume))
                self.examples, self.sampler = len(training), sampler
                self.position, self.stopped, self._began = Position(), None, time.perf_counter()
                kept_by = any(isinstance(one, Checkpoints) for one in self.callbacks)
                if kept_by or resume is not False or not self.parallel.is_alone:  # else nobody asks
                    self.origin = Origin.of(self.program, self._settings, training, held_out)
                if kept is not None:
                    take_over(self, *kept)
                if not self.parallel.is_alone:
                    self.parallel.check_same(facts_of(self) | beginning_of(self), self.origin.rows())
                history = self._fit(training, held_out)
                self._compare()  # of one process, errors of the last callbacks reach the others, and changes
            return history

    def _fit(self, training: Sequence[Any], held_out: Sequence[Any] | None) -> list[dict[str, Any]]:
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
                    told(error)
                    self._call("on_interrupt")
                raise
            finally:
                self.fitting = False
                self._call("on_fit_end")
        return self.history

    def step(self, examples: Sequence[Any]) -> float:
        """Train on one batch; return the sum of its losses. Callbacks are called as in `fit`.

        Raises:
            ExampleError: when an example does not fit the model; nothing has changed then.

        >>> import foldbatch as fb
        >>> w = fb.Parameter([], init=3.0, name="w")
        >>> product = fb.Scalar() >> fb.Function(lambda x: w * x)
        >>> trainer = Trainer(fb.compile(product >> fb.Loss()), fb.SGD(1.0))
        >>> trainer.step([1, 2]), trainer.program.params["w"]
        (9.0, array(1.5, dtype=float32))
        """
        given = several(examples)
        given = given if isinstance(given, Records) else list(given)
        batch = Batch(list(range(len(given))), given)
        with together(self.parallel.communicator):
            share = share_of(self.parallel, batch)
            self._step(share, Position(), self.parallel.numbering(share.places))
        return batch.loss

    def evaluate(self, examples: Iterable[Any]) -> dict[str, Any]:
        """Return the ``loss`` per example and each metric by its name.

        Raises:
            TrainingError: when there are no examples.
            ExampleError: when an example does not fit the model, which needs labels for its losses.
        """
        with together(self.parallel.communicator):
            return self._evaluate(examples, lambda: None)

    def predict(self, examples: Iterable[Any]) -> list[Any]:
        """Return the program's result for each example; labels are not needed.

        Raises:
            ExampleError: when an example does not fit the model.
        """
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
        """A digest of what the program computes, for checkpoints."""
        return model_digest(self.program)

    # -- before a fit

    def _sampler_for(self, examples: Sequence[Any]) -> Sampler:
        if self._given_sampler is None:
            return shuffled(examples, self._size, self._seed)
        if len(self._given_sampler.costs) != len(examples):
            found = f"one of {len(self._given_sampler.costs)}"
            fix = "make it of the examples that are given to fit"
            raise TrainingError("Trainer sampler", f"a sampler of {len(examples)} examples", found, fix)
        return self._given_sampler

    def _kept(self, resume: bool | str | os.PathLike[str]) -> tuple[dict[str, Any], str] | None:  # noqa: FBT001
        """Return the state to resume from and its file, if there is one; rank 0 alone reads it."""
        if resume is False:
            return None
        if resume is not True:
            fix = "resume=True goes on from the checkpoint of Checkpoints"
            instance_of("fit resume", resume, str | os.PathLike, "True, False or a path", fix)  # type: ignore[arg-type]
        path = self._checkpoints("fit resume").last if resume is True else Path(resume)
        wanted = self.parallel.is_first and (resume is not True or os.path.lexists(path))
        return (checkpoint.read(path), str(path)) if wanted else None

    @contextmanager
    def _folder_kept(self) -> Iterator[None]:
        """Keep the folder of checkpoints from other trainings; of several processes rank 0 does."""
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

    # -- epochs and steps

    def _run_epoch(self, examples: Sequence[Any], dev: Sequence[Any] | None) -> None:
        """Run the rest of the epoch under way, and evaluate."""
        position = self.position
        batches = self.sampler.epoch(self.epoch)
        self.batches = len(batches)
        self._began = time.perf_counter() - position.seconds
        self._call("on_epoch_start")
        with self._written_where_others_end():
            if not self.parallel.is_alone:
                name = f"order of examples in epoch {self.epoch + 1}"
                check_alike(self.parallel.communicator, {name: DIGEST + digest(batches).hex()})
            for share in shares(self.parallel, examples, batches[position.batches :], self._ahead):
                self._step(share, position, noting(NUMBERED, share.indices))
                position.read(late=True)  # a GPU has the next steps to do meanwhile
                self._look()
            loss = position.read() / max(position.examples, 1)  # a GPU is waited for here
            figures = {"epoch": self.epoch + 1, "loss": loss, "seconds": self.seconds()}
            if dev is not None:
                made = self._evaluate(dev, self._look)
                figures |= {f"dev_{name}": value for name, value in made.items()}
            self._compare()  # before callbacks keep what differs
        self.epoch, self.position, self._began = self.epoch + 1, Position(), time.perf_counter()
        self.figures = figures
        self.history.append(figures)
        self._call("on_epoch_end")

    def _evaluate(self, examples: Iterable[Any], between: Callable[[], None]) -> dict[str, Any]:
        return evaluate(self.parallel, self.metrics, examples, lambda: self._interrupts.noted, between)

    def _step(self, share: Share, position: Position, naming: AbstractContextManager[None]) -> None:
        """Train on a batch; errors of its examples are raised within `naming`."""
        self.batch = batch = share.batch
        self._call("on_step_start")
        with naming:
            both = self.parallel.sum_of(share.part, share.places, self._interrupts.noted)
        batch.loss, batch.gradients = both
        self._call("on_gradients")
        count = len(batch.examples)
        self.optimizer.update(self.program.params, batch.gradients, scale=1 / max(count, 1), loss=batch.loss)
        self.steps += 1
        position.add(batch.loss, share.indices, count)
        self._call("on_step_end")

    def _call(self, moment: str) -> None:
        for callback in self.callbacks:
            if self.parallel.is_first or not callback.first_only:
                getattr(callback, moment)(self)

    # -- several processes

    def _compare(self) -> None:  # all raise a `TrainingError` where something differs
        if not self.parallel.is_alone:
            self.parallel.check_same(facts_of(self))

    def _look(self) -> None:
        """Raise the exception of a signal: of several processes all raise it at the same step."""
        self._interrupts.look(None if self.parallel.is_alone else self.parallel.signal)

    def _agree_to_stop(self) -> None:
        """Stop where a callback of any process says so; the clocks of processes differ."""
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
            paths = [one.last for one in self.callbacks if isinstance(one, Checkpoints) and one.last.exists()]
            fix = f"go on from {paths[0]} with resume=True, or --resume" if paths else error.fix
            raise ProcessError(error.where, error.expected, error.found, fix) from error
