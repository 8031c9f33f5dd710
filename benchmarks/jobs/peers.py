"""What a job's model is compared with: logistic regression, boosting, and a recurrent network over tokens.

A peer is a function of a job and seeds to a `Fitted` for each seed. Settings are chosen on dev, from a few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.jobs.job import Example, Job

Classes = NDArray[np.int64]
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0)  # C of scikit-learn: the smaller, the stronger
LEAVES = (15, 63)  # of boosting's trees
TREES = 200
BOOSTED = 600  # features that boosting reads: the most telling ones by the chi-squared statistic


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What a model got right: accuracy on dev, the answers on test, and its settings in words."""

    dev: float
    test: Classes
    settings: str


Peer = Callable[[Job, Sequence[int]], Iterator[Fitted]]


def labels_of(examples: Sequence[Example]) -> Classes:
    """Return the labels of examples."""
    return np.array([example.label for example in examples], np.int64)


def narrow(matrix: Any) -> Any:
    """Return a sparse matrix with indices of 32 bits, as scikit-learn's solvers want them."""
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return matrix


def counted(job: Job) -> tuple[tuple[Any, Classes], Any, Any]:
    """Return the features and labels to train on, and the features of dev and test, as sparse matrices.

    Features that only one example has are left out.
    """
    from sklearn.feature_extraction import DictVectorizer  # noqa: PLC0415 - optional

    examples, vectors = job.with_mirrors(), DictVectorizer(dtype=np.float32)
    train = narrow(vectors.fit_transform([job.features(example.data) for example in examples]))
    common = np.flatnonzero(np.bincount(train.indices, minlength=train.shape[1]) > 1)
    dev, test = (
        narrow(vectors.transform([job.features(example.data) for example in part])[:, common])
        for part in (job.dev, job.test)
    )
    return (narrow(train[:, common]), labels_of(examples)), dev, test


def logistic(job: Job, seeds: Sequence[int]) -> Iterator[Fitted]:
    """Fit logistic regression to log(1 + count), whose one optimum all seeds share."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - optional
    from sklearn.preprocessing import MaxAbsScaler  # noqa: PLC0415 - optional

    (train, labels), dev, test = counted(job)
    scaler = MaxAbsScaler()
    train = scaler.fit_transform(train.log1p())
    dev, test = scaler.transform(dev.log1p()), scaler.transform(test.log1p())
    found = []
    for penalty in PENALTIES:
        model = LogisticRegression(C=penalty, max_iter=500).fit(train, labels)
        accuracy = float(model.score(dev, labels_of(job.dev)))
        found.append(Fitted(accuracy, model.predict(test), f"{train.shape[1]} features, C {penalty}"))
    yield from [max(found, key=lambda each: each.dev)] * len(seeds)


def boosting(job: Job, seeds: Sequence[int]) -> Iterator[Fitted]:
    """Fit gradient boosting to counts; a seed draws which features each split may use.

    The first seed chooses how many leaves trees have.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415 - optional
    from sklearn.feature_selection import SelectKBest, chi2  # noqa: PLC0415 - optional

    (train, labels), dev, test = counted(job)
    chosen = SelectKBest(chi2, k=min(BOOSTED, train.shape[1])).fit(train, labels)
    train, dev, test = (chosen.transform(part).toarray() for part in (train, dev, test))

    def fitted(leaves: int, seed: int) -> Fitted:
        model = HistGradientBoostingClassifier(
            learning_rate=0.1, max_iter=TREES, max_leaf_nodes=leaves, max_features=0.5, random_state=seed
        ).fit(train, labels)
        accuracy = float(model.score(dev, labels_of(job.dev)))
        return Fitted(accuracy, model.predict(test), f"{train.shape[1]} features, {leaves} leaves")

    first = {leaves: fitted(leaves, seeds[0]) for leaves in LEAVES}
    best = max(LEAVES, key=lambda leaves: first[leaves].dev)
    yield first[best]
    yield from (fitted(best, seed) for seed in seeds[1:])
