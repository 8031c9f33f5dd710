"""scikit-learn's estimators: models of the zoo as `StructureClassifier` and `StructureRegressor`.

They take lists of trees, sentences or records where others take tables of numbers, and work in
`Pipeline`, `cross_val_score` and `GridSearchCV`. They need scikit-learn, the extra ``sklearn``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foldbatch.blocks.drafts import is_int
from foldbatch.errors import BackendError, BlockValueError, NumberedNamesWarning, TrainingError, install
from foldbatch.model.weighted import example_weights
from foldbatch.program.compiling import compile
from foldbatch.program.predicting import probabilities
from foldbatch.program.program import Program
from foldbatch.program.traced import listed
from foldbatch.schema import infer
from foldbatch.train.callbacks import Schedule
from foldbatch.train.optimizers import AdamW
from foldbatch.train.schedules import one_cycle
from foldbatch.train.trainer import Callback, Trainer
from foldbatch.train.weights import ClassWeight, by_class
from foldbatch.trees.objects import tree_of
from foldbatch.trees.tree import TreeNode
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.types import BackendName, describe_value
from foldbatch.zoo.models import MODELS
from foldbatch.zoo.tasks import Task
from foldbatch.zoo.usual import usual
from foldbatch.zoo.words import Words, words_of

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_regressor
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d
except ImportError as error:
    missing = "scikit-learn to be installed"
    raise BackendError("foldbatch.estimators", missing, "none", install("sklearn")) from error

CHUNK = 256  # examples that are predicted at once
USUAL_OF_TREES = {
    "hidden": 64,
    "epochs": 10,
    "lr": 0.01,
    "weight_decay": 0.0,
    "batch_size": 32,
    "dropout": 0.0,
}  # settings that suit trees and sentences

Array = NDArray[Any]


@dataclass(eq=False, repr=False)
class StructureEstimator(BaseEstimator):
    """The base of `StructureClassifier` and `StructureRegressor`: a vocabulary, a model of the zoo, training.

    Args:
        model: ``child_sum`` for trees of any arity, ``tree_lstm`` or ``rntn`` for binary ones, ``bilstm`` for
            sentences: strings, lists of words, or trees whose words are read; ``json`` for records (see
            `foldbatch.schema.infer`).
        hidden: extent of the model's states; of records, of a layer beside their vector. By default 64, and
            none for records.
        size: extent of the words' vectors, or of those of a record's parts.
        epochs: how often training sees each example. By default 10; for records as `foldbatch.zoo.usual` says
            for so many, and so are the four settings that follow.
        lr: learning rate of AdamW; by default 0.01. For records it is the highest of one cycle.
        weight_decay: of AdamW; by default 0.
        batch_size: examples a step; by default 32.
        dropout: the share of a state that is dropped while training, before it is read; by default 0.
        seeds: how many models are trained, with seeds that follow each other; answers are their mean.
        minimum: words that are met less often are unknown words.
        random_state: the seed of the first parameters and of the order of the examples. The same number gives
            the same model; a ``RandomState`` draws one, and so does None, as of scikit-learn.
        backend: as of `foldbatch.compile`.
    """

    model: Literal["tree_lstm", "child_sum", "rntn", "bilstm", "json"] = "child_sum"
    _: KW_ONLY
    hidden: int | None = None
    size: int = 64
    epochs: int | None = None
    lr: float | None = None
    weight_decay: float | None = None
    batch_size: int | None = None
    dropout: float | None = None
    seeds: int = 1
    minimum: int = 1
    random_state: int | np.random.RandomState | None = 0
    backend: BackendName = "auto"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes and the trained parameters; programs are compiled again when used."""
        state = {name: value for name, value in super().__getstate__().items() if name != "_programs"}
        if "_programs" in vars(self):  # they may have been trained further
            state["parameters_"], *state["further_parameters_"] = map(_parameters, self._programs)
        return state

    @property
    def program_(self) -> Program:
        """The trained program; that of the first seed."""
        return self.programs_[0]

    @property
    def programs_(self) -> list[Program]:
        """The trained programs, one for each seed."""
        check_is_fitted(self)
        if "_programs" not in vars(self):
            programs = []
            # an estimator that an earlier version has pickled has one program
            for number, parameters in enumerate(
                [self.parameters_, *vars(self).get("further_parameters_", [])]
            ):
                program = self._compiled(number)
                with warnings.catch_warnings():  # the same blocks are numbered alike
                    warnings.simplefilter("ignore", NumberedNamesWarning)
                    program.params = parameters
                programs.append(program)
            self._programs = programs
        return self._programs

    def _fit(self, structures: Sequence[object], labels: Sequence[object], weights: Array | None) -> None:
        """Train new models on structures, labels and weights as the settings say; keep their parameters."""
        self.__dict__.pop("_programs", None)
        if self.model not in MODELS:
            expected = f"a model of {', '.join(MODELS)}"
            raise BlockValueError("model", expected, describe_value(self.model), "choose one of them")
        if not is_int(self.seeds) or self.seeds < 1:
            raise BlockValueError("seeds", "1 model or more", describe_value(self.seeds), "5 is usual")
        chosen = {name: value for name, value in self.get_params().items() if value is not None}
        settings = self._settings = self._usual(len(structures)) | chosen
        if not is_int(self.random_state):
            settings["random_state"] = int(check_random_state(self.random_state).randint(2**31))
        optimizers = [AdamW(settings["lr"], weight_decay=settings["weight_decay"]) for _ in range(self.seeds)]
        if self.model == "json":
            self.schema_ = infer(structures)
        else:
            self.vocabulary_ = Vocabulary.count(_words(self.model, structures), self.minimum)
            self.kinds_ = _kinds(self.model, structures)
        examples = list(zip(structures, labels, strict=True))
        programs = []
        for number, optimizer in enumerate(optimizers):
            program = self._compiled(number)
            trainer = Trainer(
                program,
                optimizer,
                batch_size=settings["batch_size"],
                seed=settings["random_state"] + number,
                callbacks=self._schedule(len(examples)),
            )
            trainer.fit(examples, epochs=settings["epochs"], sample_weight=weights)
            programs.append(program)
        self.parameters_, *self.further_parameters_ = map(_parameters, programs)
        self._programs = programs

    def _usual(self, count: int) -> dict[str, Any]:
        """Return the settings of so many structures that nobody has chosen."""
        if self.model != "json":
            return USUAL_OF_TREES
        return {"hidden": 0} | usual(count, numbers=is_regressor(self))._asdict()

    def _schedule(self, count: int) -> list[Callback]:
        """Return the callback that changes the learning rate, for records."""
        batch_size, epochs = self._settings["batch_size"], self._settings["epochs"]
        if self.model != "json" or not (is_int(batch_size) and is_int(epochs) and batch_size > 0):
            return []  # the Trainer refuses what is no number
        steps = -(-count // batch_size) * epochs
        return [Schedule(one_cycle(steps))] if steps > 1 else []

    def _compiled(self, number: int = 0) -> Program:
        """Return a program of the model that the settings name, for the training's vocabulary or schema."""
        settings = self._settings
        options = {"hidden": settings["hidden"]}
        if settings["model"] == "json":
            of_inputs: Any = self.schema_.block(settings["size"], dropout=settings["dropout"])
        else:
            of_inputs = Words(self.vocabulary_, settings["size"])
            options |= {} if self.kinds_ is None else {"kinds": self.kinds_}
        block = MODELS[settings["model"]](of_inputs, self._task(), **options)
        return compile(block, settings["backend"], seed=settings["random_state"] + number)

    def _task(self) -> Task:
        raise NotImplementedError

    def _results(self, structures: Iterable[object]) -> list[list[Any]]:
        """Return the results of each seed's program."""
        check_is_fitted(self)
        read = _read_once(self._settings["model"], listed(structures))
        pairs = [(structure, None) for structure in read]
        parts = [pairs[i : i + CHUNK] for i in range(0, len(pairs), CHUNK)]
        return [[result for part in parts for result in program.run(part)] for program in self.programs_]


@dataclass(eq=False, repr=False)
class StructureClassifier(ClassifierMixin, StructureEstimator):
    """Classifies trees, sentences or records with a model of the zoo.

    Args:
        model and others: see `StructureEstimator`.
        class_weight: how much the examples of each class count: a dict by class, in which those left out have
            1, or ``"balanced"``, by which all classes count alike.
        smoothing: the share of a class's loss that is the mean over all classes, as of
            `foldbatch.ops.cross_entropy`.

    ``fit(X, y)`` takes a list of structures and their classes, of any type that sorts. A fitted estimator has
    ``classes_``, ``parameters_`` and ``program_``; also ``vocabulary_`` and ``kinds_`` (of nodes, or None),
    or ``schema_`` of records. It can be pickled.

    Raises:
        BlockValueError, TrainingError: by `fit`, when a setting does not fit.
        NotFittedError: when it is asked for predictions first.

    >>> X = [fb.trees.python_tree(text) for text in ("x = 1", "f(x)", "y = 2", "g(y)")]
    >>> classifier = StructureClassifier(hidden=8, size=8, epochs=20, batch_size=2, backend="numpy")
    >>> classifier.fit(X, ["assigns", "calls", "assigns", "calls"]).predict([fb.trees.python_tree("z = 3")])
    array(['assigns'], dtype='<U7')
    """

    _: KW_ONLY
    class_weight: ClassWeight | None = None
    smoothing: float = 0.0

    def fit(self, X: Sequence[object], y: object, sample_weight: object = None) -> StructureClassifier:
        """Train on structures and their classes; `sample_weight` says how much each counts, by default 1."""
        structures = _structures(self, X, y)
        _check_types(y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            actual = f"only {self.classes_.tolist()[0]!r}"
            fix = "look at the labels; folds of a cross-validation can be stratified"
            raise TrainingError("y", "labels of two classes or more", actual, fix)
        weights = None if sample_weight is None else _weights(sample_weight, len(structures))
        if self.class_weight is not None:
            of_classes = by_class(self.classes_[labels].tolist(), self.class_weight)
            weights = of_classes if weights is None else weights * of_classes
        self._fit(structures, labels.tolist(), weights)
        return self

    def predict_proba(self, X: Iterable[object]) -> Array:
        """Return the chance of each class, ``[len(X), len(classes_)]``."""
        of_seeds = [
            np.array(results, "float64").reshape(-1, len(self.classes_)) for results in self._results(X)
        ]
        return np.asarray(np.mean([probabilities(scores) for scores in of_seeds], axis=0))

    def predict(self, X: Iterable[object]) -> Array:
        """Return the likeliest class of each structure."""
        chances = self.predict_proba(X)
        return np.asarray(self.classes_[chances.argmax(axis=1)])

    def _task(self) -> Task:
        settings = self._settings
        smoothing = settings.get("smoothing", 0.0)  # which estimators pickled by earlier versions have not
        classes = len(self.classes_)
        return Task("class", classes=classes, dropout=settings["dropout"], smoothing=smoothing)


class StructureRegressor(RegressorMixin, StructureEstimator):
    """Tells a number of trees, sentences or records with a model of the zoo; see `StructureEstimator`.

    It learns the numbers less their mean, over their standard deviation: ``center_`` and ``scale_``.

    Raises:
        BlockValueError, TrainingError: by `fit`, when a setting does not fit.
        NotFittedError: when it is asked for predictions first.

    >>> X = [fb.trees.python_tree(text) for text in ("1", "1 + 1", "1 + 1 + 1", "1 + 1 + 1 + 1")]
    >>> regressor = StructureRegressor(hidden=8, size=8, epochs=50, batch_size=4, backend="numpy")
    >>> regressor.fit(X, [1, 2, 3, 4]).predict(X).round().tolist()
    [1.0, 2.0, 3.0, 4.0]
    """

    def fit(self, X: Sequence[object], y: object, sample_weight: object = None) -> StructureRegressor:
        """Train on structures and their numbers; `sample_weight` says how much each counts, by default 1."""
        structures = _structures(self, X, y)
        try:
            numbers = column_or_1d(y, warn=True).astype("float64")
        except (TypeError, ValueError) as error:
            fix = "classes: StructureClassifier"
            raise TrainingError("y", "a number for each structure", str(error), fix) from error
        weights = None if sample_weight is None else _weights(sample_weight, len(structures))
        with np.errstate(all="ignore"):
            center = np.average(numbers, weights=weights)
            deviation = np.sqrt(np.average(np.square(numbers - center), weights=weights))
            self.center_, self.scale_ = float(center), float(deviation) or 1.0
        if not np.isfinite(self.scale_):
            actual = "NaN, infinity, or numbers whose squares are infinite"
            raise TrainingError("y", "finite numbers", actual, "leave those examples out, or scale y")
        self._fit(structures, ((numbers - self.center_) / self.scale_).tolist(), weights)
        return self

    def predict(self, X: Iterable[object]) -> Array:
        """Return a number for each structure."""
        numbers = np.mean(np.array(self._results(X), "float64"), axis=0)
        return np.asarray(numbers * self.scale_ + self.center_)

    def _task(self) -> Task:
        return Task("number", dropout=self._settings["dropout"])


def _parameters(program: Program) -> dict[str, Array]:
    """Return a copy of the parameters of a program."""
    return {name: np.array(value) for name, value in program.params.items()}


def _structures(estimator: StructureEstimator, structures: Sequence[object], labels: object) -> list[Any]:
    """Return structures as a list, checked against their labels."""
    if labels is None:
        fix = f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        raise TrainingError("y", "a label for each structure", "None", fix)
    read = listed(structures)
    check_consistent_length(read, labels)
    if not len(read):
        raise TrainingError("X", "1 example or more", "none", "give some to train on")
    return _read_once(estimator.model, read)


def _read_once(model: str, structures: Iterable[object]) -> list[Any]:
    """Return structures as a list: for a model of trees, those that objects of other libraries hold."""
    return list(structures) if model in ("bilstm", "json") else [*map(tree_of, structures)]


def _weights(sample_weight: Any, count: int) -> Array:
    """Return the weights of so many examples, checked: ``[count]``; one number is that of all."""
    weights = np.full(count, sample_weight) if np.isscalar(sample_weight) else sample_weight
    try:
        checked = example_weights("sample_weight", weights, count)
    except BlockValueError as error:
        raise TrainingError(error.where, error.expected, error.found, error.fix) from None
    if not checked.any():
        raise TrainingError("sample_weight", "a weight above 0", "none", "give 1 to what counts once")
    return checked.astype(np.float64)


def _check_types(labels: Any) -> None:
    """Refuse labels that NumPy would make texts, or numbers, of one another."""
    if getattr(getattr(labels, "dtype", None), "kind", "O") != "O":
        return
    types = {type(label.item() if isinstance(label, np.generic) else label) for label in labels}
    if len(types & {str, bool}) + bool(types & {int, float}) > 1:
        actual = " and ".join(sorted(kind.__name__ for kind in types))
        raise TrainingError("y", "labels of one type", actual, "write all as texts, or all as numbers")


def _words(model: str, structures: Sequence[object]) -> Iterable[str]:
    if model == "bilstm":
        return (word for structure in structures for word in words_of(structure))
    tokens = (token for node in _nodes(structures) for token in node.tree.tokens[_places(node)])
    return (token for token in tokens if token is not None)


def _kinds(model: str, structures: Sequence[object]) -> Vocabulary | None:
    if model != "child_sum":
        return None
    labels = (label for node in _nodes(structures) for label in node.tree.labels[_places(node)])
    kinds = Vocabulary.count(str(label) for label in labels if label is not None)
    return kinds if len(kinds) > 1 else None


def _places(node: TreeNode) -> slice:
    return slice(node.index - node.size + 1, node.index + 1)


def _nodes(structures: Sequence[Any]) -> Sequence[TreeNode]:
    """Return structures as they are; refuse those that are no trees."""
    for number, structure in enumerate(structures):
        if not isinstance(structure, TreeNode):
            where, fix = f"X[{number}]", "model='json' reads records, model='bilstm' sentences"
            expected = "a foldbatch.trees.Tree, or what fb.trees.from_ reads"
            raise TrainingError(where, expected, describe_value(structure), fix)
    return structures
