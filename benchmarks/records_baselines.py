"""Three baselines on nested records: a linear model of bags, and two ensembles of trees on flat features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.pipeline import make_pipeline, make_union

from benchmarks.records_data import Record, Split
from foldbatch.schema.moments import cycles, moment_of

Array = NDArray[Any]
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)  # of logistic regression, of which development chooses one
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


def figures(split: Split, seed: int, strengths: Sequence[float] = STRENGTHS) -> dict[str, float]:
    """Return the accuracies of the three baselines on the test part.

    Where there is a development part, it chooses the strength of logistic regression; else three folds of the
    training part do.
    """
    frequent = frequent_names(split.train)
    flat = DictVectorizer(sparse=False)
    train = flat.fit_transform([numbers_of(record, frequent) for record in split.train])
    test = flat.transform([numbers_of(record, frequent) for record in split.test])
    forest = RandomForestClassifier(300, random_state=seed).fit(train, split.train_classes)
    boosting = HistGradientBoostingClassifier(random_state=seed, early_stopping=False)
    boosting.fit(train, split.train_classes)
    linear = _linear(split, strengths)
    return {
        "linear": linear.score(split.test, split.test_classes),
        "boosting": boosting.score(test, split.test_classes),
        "forest": forest.score(test, split.test_classes),
    }


def _linear(split: Split, strengths: Sequence[float]) -> Any:
    """Return logistic regression on bags of values and words, and on n-grams of characters."""
    bag = TfidfVectorizer(analyzer=values_of, sublinear_tf=True)
    grams = TfidfVectorizer(preprocessor=text_of, analyzer="char_wb", ngram_range=(3, 3), sublinear_tf=True)
    features = make_union(bag, grams)
    if not split.dev:
        pipeline = make_pipeline(features, LogisticRegressionCV(Cs=[*strengths], cv=3, max_iter=300))
        return pipeline.fit(split.train, split.train_classes)
    models = [make_pipeline(features, LogisticRegression(C=strength, max_iter=300)) for strength in strengths]
    scored = []
    for model in models:
        model.fit(split.train, split.train_classes)
        scored.append((model.score(split.dev, split.dev_classes), model))
    return max(scored, key=lambda pair: pair[0])[1]
