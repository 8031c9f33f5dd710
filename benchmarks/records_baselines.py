"""Three baselines on nested records: a linear model of bags, and two ensembles of trees on flat features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_union
from sklearn.preprocessing import StandardScaler

from benchmarks.records_data import Record, Split
from foldbatch.schema.moments import cycles, moment_of

Array = NDArray[Any]
STRENGTHS = (0.1, 1.0, 10.0)  # of logistic regression, of which development chooses one
FEW_CLASSES = 10  # of more, boosting has fewer rounds: each makes a tree for each class
FREQUENT = 150  # values of texts that become counts


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a record that hold no others, with their paths; of lists also the length."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    elif isinstance(value, list):
        yield f"{path}#", len(value)
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    elif value is not None:
        yield path, value


def numbers_of(record: Record, frequent: set[str]) -> dict[str, float]:
    """Return flat features: mean, sum, least and most of numbers by path, and counts of frequent values."""
    of_path: dict[str, list[float]] = {}
    features: dict[str, float] = {}
    for path, value in leaves(record):
        if isinstance(value, str):
            moment = moment_of(value)
            for number, part in enumerate([] if moment is None else [moment.seconds, *cycles(moment)]):
                of_path.setdefault(f"{path}:{number}", []).append(part)
        else:
            of_path.setdefault(path, []).append(float(value))
        for name in names_of(path, value):
            if name in frequent:
                features[name] = features.get(name, 0.0) + 1
    for path, numbers in of_path.items():
        features |= {f"{path} mean": sum(numbers) / len(numbers), f"{path} sum": sum(numbers)}
        features |= {f"{path} min": min(numbers), f"{path} max": max(numbers)}
    return features


def names_of(path: str, value: Any) -> list[str]:
    """Return the names under which a value is counted: itself, and the words of a text."""
    if isinstance(value, float):
        return []
    words = value.lower().split() if isinstance(value, str) else []
    return [f"{path}={value}", *(f"{path} has {word}" for word in words if len(words) > 1)]


def frequent_names(records: Sequence[Record]) -> set[str]:
    """Return the names that most records have."""
    counts = Counter(name for r in records for name in {n for p, v in leaves(r) for n in names_of(p, v)})
    return {name for name, _ in counts.most_common(FREQUENT)}


def values_of(record: Record) -> list[str]:
    """Return the texts, codes and flags of a record, with their paths, as words of a bag."""
    return [name for path, value in leaves(record) for name in names_of(path, value)]


def text_of(record: Record) -> str:
    """Return all texts of a record as one."""
    return " ".join(value for _, value in leaves(record) if isinstance(value, str))


def figures(split: Split, seed: int) -> dict[str, float]:
    """Return the accuracies of the three baselines on the test part."""
    frequent = frequent_names(split.train)
    train, dev, test = (
        [numbers_of(record, frequent) for record in part] for part in (split.train, split.dev, split.test)
    )
    flat = DictVectorizer(sparse=False).fit(train)
    rounds = 100 if len(set(split.train_classes)) <= FEW_CLASSES else 60
    boosting = HistGradientBoostingClassifier(random_state=seed, early_stopping=False, max_iter=rounds)
    forest = RandomForestClassifier(300, random_state=seed)
    scores = {}
    for name, model in (("boosting", boosting), ("forest", forest)):
        model.fit(flat.transform(train), split.train_classes)
        scores[name] = float(model.score(flat.transform(test), split.test_classes))
    return {
        "linear": _linear(split, [flat.transform(part) if part else None for part in (train, dev, test)])
    } | scores


def _linear(split: Split, flat: Sequence[Array | None]) -> float:
    """Return the accuracy of logistic regression on bags and n-grams, with or without flat numbers.

    The development part chooses the strength, and whether there are flat numbers; three folds of the training
    part where there is none.
    """
    texts = make_union(
        TfidfVectorizer(analyzer=values_of, sublinear_tf=True),
        TfidfVectorizer(preprocessor=text_of, analyzer="char_wb", ngram_range=(3, 3), sublinear_tf=True),
    ).fit(split.train)
    scale = StandardScaler().fit(flat[0])
    bags = [texts.transform(part) if part else None for part in (split.train, split.dev, split.test)]
    both = [
        None if bag is None else hstack([bag, csr_matrix(scale.transform(numbers))]).tocsr()
        for bag, numbers in zip(bags, flat, strict=True)
    ]
    best = (-1.0, 0.0)
    for train, dev, test in (bags, both):
        for strength in STRENGTHS:
            model = LogisticRegression(C=strength, max_iter=200)
            if dev is None:
                chosen_by = float(np.mean(cross_val_score(model, train, split.train_classes, cv=3)))
            model.fit(train, split.train_classes)
            if dev is not None:
                chosen_by = float(model.score(dev, split.dev_classes))
            best = max(best, (chosen_by, float(model.score(test, split.test_classes))))
    return best[1]
