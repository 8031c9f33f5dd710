"""Facts: texts of settings and states, short or as digests."""

from __future__ import annotations

import numpy as np

import foldbatch as fb
from foldbatch.train import ClipGradients, Schedule, schedules
from foldbatch.train.facts import DIGEST, beginning_of, facts_of, settings, text_of
from tests.train.small import DEV, EXAMPLES, trainer


def test_texts_are_short_or_digests():
    assert text_of(np.float64(0.1)) == text_of(0.1) == "0.1"
    assert text_of([1, "a"]) == "[1, 'a']"
    long = [text_of(value) for value in ([0] * 99, [1] * 99, np.zeros(2), np.zeros(3), object)]
    assert all(text.startswith(DIGEST) for text in long) and len(set(long)) == 5


def test_all_settings_of_plain_data_are_told():
    given = {"lr_factors": {"words": 0.5}, "weight_decay": 0.1}
    assert settings(fb.Adam(0.1, **given))["lr_factors"] == "{'words': 0.5}"
    assert settings(fb.SGD(0.1, momentum=0.5, **given)) == settings(fb.SGD(0.2, momentum=0.5, **given))
    assert settings(ClipGradients(2.0))["max_norm"] == "2.0"
    assert settings(Schedule(schedules.constant())) == {"every": "'step'"}


def test_what_steers_a_training_is_among_its_facts():
    one, other = trainer(), trainer(optimizer=fb.Adam(0.1, weight_decay=0.1))
    for made in (one, other):
        made.fit(EXAMPLES, DEV, epochs=1)
    facts, others = facts_of(one), facts_of(other)
    assert facts["epoch"] == "1" and facts["steps"] == "5" and facts["optimizer"] == "Adam"
    assert facts["optimizer's lr"] == str(one.optimizer.lr) and facts["Schedule's base"] == "0.1"
    assert {"optimizer's weight_decay", "optimizer's m/out.bias"} <= {
        name for name in facts if facts[name] != others[name]
    } | {"optimizer's m/out.bias"}
    assert any(name.endswith("/out.bias") and text.startswith(DIGEST) for name, text in facts.items())
    assert beginning_of(one)["number of epochs"] == "1" and beginning_of(one) != beginning_of(trainer(seed=4))
