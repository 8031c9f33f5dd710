"""Contenders of scikit-learn: boosting and a forest over flat features, and linear models over bags."""

import copy
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge

from foldbatch.contest import features
from foldbatch.contest.clock import Clock
from foldbatch.contest.contender import Contender, Learnt, Lesson, Predict
from foldbatch.contest.examples import Form
from foldbatch.contest.measures import score
from foldbatch.params.parameters import Array

FEATURE_COLUMNS = 300  # of the most frequent features; the others are added up in buckets
FEATURE_BUCKETS = 32
TREES_AT_ONCE = 10  # between two looks at dev
FOREST_AT_ONCE = 25
MAX_BOOSTED, MAX_TREES = 400, 200
BEARABLE = 3  # looks at dev without a better score
STRENGTHS = 0.3, 3.0, 30.0  # of a linear model: the inverse of its regularisation


class FlatTable:
    """Rows of numbers of structures: the most frequent features of training, and buckets of the others."""

    def __init__(self, structures: Sequence[object], form: Form) -> None:
        self.form = form
        counted = Counter(name for x in structures for name in features.counts_of(x, form))
        frequent = [name for name, count in counted.most_common(FEATURE_COLUMNS) if count > 1]
        self.columns = {name: place for place, name in enumerate(sorted(frequent))}
        self.hasher = FeatureHasher(FEATURE_BUCKETS, alternate_sign=False)

    def rows(self, structures: Sequence[object]) -> NDArray[np.float32]:
        """Return a row of each structure, ``[N, columns + buckets]``."""
        table = np.zeros((len(structures), len(self.columns)), np.float32)
        rare_counts = []
        for row, structure in enumerate(structures):
            counts = features.counts_of(structure, self.form)
            for name, value in counts.items():
                place = self.columns.get(name)
                if place is not None:
                    table[row, place] = value
            rare = counts.keys() - self.columns.keys()
            rare_counts.append(
                {name: counts[name] for name in rare if not name.startswith(features.STATISTICS)}
            )
        return np.hstack([table, self.hasher.transform(rare_counts).toarray().astype(np.float32)])


def train_boosting(lesson: Lesson, clock: Clock) -> Learnt:
    """Add trees by boosting until dev gets no better."""
    kind = HistGradientBoostingClassifier if lesson.task == "class" else HistGradientBoostingRegressor
    model = kind(random_state=lesson.seed, early_stopping=False, warm_start=True)
    return _grown(model, "max_iter", TREES_AT_ONCE, MAX_BOOSTED, lesson, clock)


def train_forest(lesson: Lesson, clock: Clock) -> Learnt:
    """Grow a random forest of 200 trees, or until dev gets no better."""
    kind = RandomForestClassifier if lesson.task == "class" else RandomForestRegressor
    model = kind(random_state=lesson.seed, warm_start=True, max_features="sqrt")
    return _grown(model, "n_estimators", FOREST_AT_ONCE, MAX_TREES, lesson, clock)


def _grown(model: Any, count: str, step: int, limit: int, lesson: Lesson, clock: Clock) -> Learnt:
    """Add trees to a model, some at a time; keep the number of trees that is best on dev."""
    table = FlatTable(lesson.flat_structures, lesson.form)
    rows, dev = table.rows(lesson.flat_structures), table.rows(lesson.dev.structures)
    best, kept, curve, waited, trees = -np.inf, model, list[tuple[float, float]](), 0, 0
    while trees < limit and waited < BEARABLE and not (trees and clock.is_over()):
        trees += step
        model.set_params(**{count: trees})
        model.fit(rows, lesson.flat_answers)
        figure = score(lesson.dev.answers, model.predict(dev), lesson.task)
        curve.append((clock.elapsed(), figure))
        waited += 1
        if figure > best:
            best, kept, waited, size = figure, copy.deepcopy(model), 0, trees
    setting = f"{size} trees on {rows.shape[1]} columns"
    predict: Predict = lambda structures: kept.predict(table.rows(structures))  # noqa: E731 - as of the linear one
    return Learnt(predict, len(pickle.dumps(kept)), setting, curve, trees >= limit or waited >= BEARABLE)


def train_linear(lesson: Lesson, clock: Clock) -> Learnt:
    """Fit logistic regression, or ridge regression of numbers, on weighted bags; dev chooses its strength."""
    vectorizer, weights = DictVectorizer(), TfidfTransformer(sublinear_tf=True)
    counted = Counter(name for x in lesson.flat_structures for name in features.bag_of(x, lesson.form))

    def bags(structures: Sequence[object]) -> list[features.Counts]:
        """Return bags without what training has only once, and what has no logarithm."""
        listed = (features.bag_of(x, lesson.form) for x in structures)
        return [{name: n for name, n in bag.items() if n > 0 and counted[name] > 1} for bag in listed]

    rows = weights.fit_transform(vectorizer.fit_transform(bags(lesson.flat_structures)))
    dev = weights.transform(vectorizer.transform(bags(lesson.dev.structures)))
    tries: list[tuple[float, float, Any]] = []
    for strength in STRENGTHS:
        if tries and clock.is_over():
            break
        model = (
            LogisticRegression(C=strength, max_iter=300) if lesson.task == "class" else Ridge(1 / strength)
        )
        model.fit(rows, lesson.flat_answers)
        tries.append((score(lesson.dev.answers, model.predict(dev), lesson.task), strength, model))
    _, strength, model = max(tries, key=lambda entry: entry[0])
    predict: Callable[[Sequence[Any]], Array] = lambda structures: model.predict(  # noqa: E731
        weights.transform(vectorizer.transform(bags(structures)))
    )
    size = model.coef_.nbytes + np.asarray(model.intercept_).nbytes
    return Learnt(
        predict, size, f"strength {strength:g}, {rows.shape[1]} columns", [], len(tries) == len(STRENGTHS)
    )


def _counting(form: Form) -> list[Any]:
    of_form: dict[Form, object] = {"records": features._record_counts, "trees": features._count_nodes}
    return [features.counts_of, *([of_form[form]] if form in of_form else [])]


def _pairs(form: Form) -> list[object]:
    of_lines = {"trees": [features._tree_tokens]}.get(form, [])
    return [train_linear, features.bag_of, *([features.tokens_of] if form != "records" else []), *of_lines]


BOOSTING = Contender(
    "boosting on counts", train_boosting, lambda form: [train_boosting, _grown, FlatTable, *_counting(form)]
)
FOREST = Contender(
    "random forest on counts", train_forest, lambda form: [train_forest, _grown, FlatTable, *_counting(form)]
)
LINEAR = Contender("linear on bags", train_linear, lambda form: [*_pairs(form), *_counting(form)])
