"""`fb.compare`: the same examples for all, an honest verdict in both directions, figures that a seed repeats."""

import sys
from dataclasses import replace

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.contest import comparing, read
from foldbatch.contest.comparing import MODULES
from foldbatch.contest.contender import Contender, Learnt
from foldbatch.errors import BlockValueError, ReadError, UnknownNameError, install
from tests.contest.conftest import bags, formulas

pytestmark = pytest.mark.slow

MINUTES = 10  # more than any of these needs


class Stub:
    """A contender that answers by a rule, and remembers what it was given."""

    def __init__(self, title, answer):
        self.title, self.answer, self.lessons, self.asked = title, answer, [], []

    def train(self, lesson, clock):
        self.lessons.append(lesson)
        sum(range(10**5))  # some CPU time

        def predict(structures):
            self.asked.append(list(structures))
            return np.array([self.answer(x, lesson) for x in structures])

        return Learnt(predict, 8, "a rule", [(0.1, 0.5)])

    def contender(self):
        return Contender(self.title, self.train, lambda form: [fb.trees.parse_brackets])


@pytest.fixture
def stubs(monkeypatch):
    """Contenders by rules in the places of two: the last word of a text, and nothing but the first class."""
    right = Stub("foldbatch", lambda x, lesson: lesson.classes.index(x[-1]))
    dull = Stub("bags", lambda x, lesson: 0)
    monkeypatch.setattr(sys.modules[__name__], "RIGHT", right.contender(), raising=False)
    monkeypatch.setattr(sys.modules[__name__], "DULL", dull.contender(), raising=False)
    places = {"foldbatch": (__name__, "RIGHT", "", 1.0), "linear": (__name__, "DULL", "", 1.0)}
    places |= {"bilstm": ("nowhere", "NONE", "no_such_library", 1.0)}
    monkeypatch.setattr(comparing, "MODULES", places)
    monkeypatch.setitem(comparing.LIBRARIES, "no_such_library", "No such library")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    return right, dull


TEXTS = [f"{i} has {'ab'[i % 2]}" for i in range(100)]
LABELS = ["ab"[i % 2] for i in range(100)]


def contest(**options):
    return fb.compare(TEXTS, LABELS, contenders=["foldbatch", "linear", "bilstm"], **options)


def test_all_contenders_learn_the_same_lesson_and_answer_test_once(stubs):
    outcome = contest()
    right, dull = stubs
    assert right.lessons[0] is dull.lessons[0]
    assert len(right.lessons) == len(dull.lessons) == 1
    train, dev, test = (stub_part for stub_part in right.asked)
    assert right.asked == dull.asked
    assert (len(train), len(dev), len(test)) == (70, 10, 20)
    assert set(test).isdisjoint([*train, *dev])
    assert (outcome.facts.trained, outcome.facts.tested) == (70, 20)


def test_wins_and_losses_stand_in_the_table(stubs):
    outcome = contest()
    assert [x.title for x in outcome.contenders] == ["foldbatch", "bags", "constant"]
    assert [(x.title, x.outcome) for x in outcome.rivalries] == [("bags", "wins"), ("constant", "wins")]
    assert outcome.verdict.startswith("structure pays here")
    assert "100.0 %" in outcome.table() and "50.0 %" in outcome.table()
    stubs[0].answer, stubs[1].answer = stubs[1].answer, stubs[0].answer
    turned = contest()
    assert [x.outcome for x in turned.rivalries] == ["loses", "ties"]
    assert turned.verdict.startswith("structure does not pay here: foldbatch is worse")
    assert [mistake.ours_is_right for mistake in turned.mistakes] == [False] * 4
    assert "loses" in str(turned)


def test_a_contender_without_its_library_is_told_and_left_out(stubs):
    outcome = contest()
    assert outcome.not_run == (f"not run, without No such library: bilstm; {install('compare')}",)
    assert outcome.not_run[0] in str(outcome)


def test_a_contender_that_fails_is_told_and_the_others_go_on(stubs):
    stubs[1].answer = lambda x, lesson: int("none")
    outcome = contest()
    assert [x.title for x in outcome.contenders] == ["foldbatch", "constant"]
    assert outcome.not_run[1].startswith("bags failed, in its library: invalid literal")
    stubs[0].answer = stubs[1].answer
    with pytest.raises(ValueError, match="invalid literal"):
        contest()


def test_the_linear_model_bears_what_has_no_words():
    pytest.importorskip("sklearn")
    texts = ["", *(f"{'red' if i % 2 else 'blue'} w{i}" for i in range(40))]
    outcome = fb.compare(texts, ["b", *("rb"[1 - i % 2] for i in range(40))], contenders=["linear"])
    assert not outcome.not_run
    assert outcome.contenders[0].score.figure > 0.8


def test_without_baselines_there_is_no_verdict(stubs):
    outcome = fb.compare(TEXTS, LABELS, contenders=["foldbatch"])
    assert outcome.verdict.startswith("there is none")


def test_the_seed_decides_the_split(stubs):
    for seed in (0, 0, 1):
        contest(seed=seed)
    first, again, second = (lesson.train.structures for lesson in stubs[0].lessons)
    assert first == again != second


def test_numbers_are_scored_by_r2_and_mean_error(stubs):
    stubs[0].answer = lambda x, lesson: float(x[0]) + 0.5
    stubs[1].answer = lambda x, lesson: 50.0
    outcome = fb.compare(TEXTS, [i + 0.5 for i in range(100)], contenders=["foldbatch", "linear"])
    assert (outcome.contenders[0].score.figure, outcome.contenders[0].error) == (1.0, 0.0)
    assert outcome.contenders[1].score.figure == pytest.approx(0, abs=0.3)
    assert "R2" in outcome.table() and "mean error" in outcome.table()
    assert outcome.rivalries[0].outcome == "wins"
    assert outcome.rivalries[0].chance is None


HARM = "<script>alert('harm')</script>&\""


def test_the_page_escapes_what_strangers_wrote(stubs, tmp_path):
    texts = [f"{i} {HARM.replace(' ', '')} {'ab'[i % 2]}{HARM}" for i in range(60)]
    stubs[0].answer = lambda x, lesson: [name[0] for name in lesson.classes].index(x[-1][0])
    examples = comparing.examples_of(
        texts, [f"{'ab'[i % 2]}{HARM}" for i in range(60)], f"{HARM}.csv", notes=[HARM]
    )
    outcome = fb.compare(examples, contenders=["foldbatch", "linear"])
    assert outcome.mistakes
    outcome.html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(&#x27;harm&#x27;)") >= 6  # title, heading, note, classes, examples
    assert "foldbatch" in page and "structure pays here" in page


def test_the_page_has_plots_where_matplotlib_is_and_says_so_elsewhere(stubs, tmp_path, monkeypatch):
    outcome = contest()
    monkeypatch.setattr(comparing.import_module("foldbatch.views.plots"), "is_installed", lambda: False)
    outcome.html(tmp_path / "plain.html")
    assert "matplotlib is not installed" in (tmp_path / "plain.html").read_text()
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    outcome.html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().count("data:image/png;base64,") == 2


def test_wrong_arguments_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'bilstm'"):
        fb.compare(TEXTS, LABELS, contenders=["bilsm"])
    for name, value in (("minutes", 0), ("limit", -1), ("minutes", float("nan"))):
        with pytest.raises(BlockValueError, match=f"{name}: expected a number above 0"):
            fb.compare(TEXTS, LABELS, **{name: value})
    with pytest.raises(ReadError, match="20 examples or more, found 3"):
        fb.compare(TEXTS[:3], LABELS[:3])


def ours(structures, targets=None, **options):
    return fb.compare(structures, targets, contenders=["foldbatch"], minutes=MINUTES, **options)


def test_ours_learns_records_sequences_phrases_and_numbers():
    records = [{"tags": ["red" if i % 3 else "blue", f"t{i % 7}"], "n": i} for i in range(240)]
    outcome = ours(records, ["yes" if i % 3 else "no" for i in range(240)])
    assert outcome.contenders[0].setting.startswith("json")
    assert outcome.rivalries[-1].outcome == "wins"
    outcome = ours(
        [f"the {a} film {b}" for a in ("good", "bad") for b in map(str, range(40))], ["p"] * 40 + ["n"] * 40
    )
    assert outcome.contenders[0].setting.startswith("bilstm")
    assert outcome.contenders[0].score.figure > 0.8


def test_ours_learns_phrases_of_which_nodes_have_labels():
    words = {"good": 1, "fine": 1, "bad": 0, "poor": 0}
    texts = [f"({n} ({n} {w}) (2 {o}))" for w, n in words.items() for o in "abcdefghijkl"]
    outcome = ours([fb.trees.parse_brackets(text) for text in texts])
    assert outcome.facts.form == "phrases"
    assert any("the labels of all nodes" in note for note in outcome.notes)
    assert outcome.contenders[0].score.figure == 1.0


def test_ours_is_what_its_seed_says():
    structures, targets = bags(60)
    first, again = (ours(structures, targets, seed=1).contenders[0] for _ in range(2))
    assert [figure for _, figure in first.curve] == [figure for _, figure in again.curve]
    assert (first.score, first.train_score, first.setting) == (again.score, again.train_score, again.setting)


def test_structure_pays_where_nesting_decides():
    pytest.importorskip("sklearn")
    outcome = fb.compare(*formulas(400, depth=3), contenders=["linear", "foldbatch"], minutes=MINUTES)
    assert outcome.verdict.startswith("structure pays here: foldbatch is better than the best baseline")
    assert outcome.rivalries[0].outcome == "wins"


def test_structure_does_not_pay_where_a_bag_decides():
    pytest.importorskip("sklearn")
    outcome = fb.compare(*bags(300), contenders=["linear", "foldbatch"], minutes=MINUTES)
    assert outcome.verdict.startswith("structure does not pay here")
    assert outcome.contenders[1].score.figure > 0.95
    assert outcome.rivalries[0].outcome == "ties"


@pytest.fixture
def small_models(monkeypatch):
    """Models of PyTorch that are trained in a second."""
    padded = pytest.importorskip("foldbatch.contest.padded", exc_type=ImportError)
    for name, value in {"STATE_WIDTH": 32, "ROUNDS": 6, "DROPOUTS": (0.0,), "BATCH": 8}.items():
        monkeypatch.setattr(padded, name, value)


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("name", ["linear", "forest", "boosting", "bilstm", "transformer"])
@pytest.mark.parametrize("task", ["class", "number"])
def test_each_baseline_learns_what_is_easy_and_repeats_it(name, task):
    pytest.importorskip(MODULES[name][2])
    structures, targets = bags(120)
    if task == "number":
        targets = [3.5 if target == "spam" else -1.25 for target in targets]
    runs = []
    for number in range(2):
        if MODULES[name][2] == "torch":
            pytest.importorskip("torch").manual_seed(number)  # which decides nothing here
        outcome = fb.compare(structures, targets, contenders=[name], task=task, minutes=MINUTES)
        runs.append(outcome.contenders[0])
    assert runs[0].score.figure > (0.8 if task == "class" else 0.2)
    assert runs[0].score == runs[1].score
    assert [figure for _, figure in runs[0].curve] == [figure for _, figure in runs[1].curve]
    assert runs[0].size > 100 and runs[0].lines > 20


@pytest.mark.usefixtures("small_models")
def test_baselines_read_records_sequences_and_phrases():
    pytest.importorskip("sklearn")
    names = [name for name in MODULES if name != "foldbatch"]
    records = [
        {"a": i % 2, "text": f"w{i} {'red' if i % 2 else 'blue'}", "x": [1.5, i, None]} for i in range(60)
    ]
    sentences = [f"w{i} {'red' if i % 2 else 'blue'}" for i in range(60)]
    trees = [
        fb.trees.parse_brackets(f"({i % 2} ({i % 2} {'red' if i % 2 else 'blue'}) (1 w{i}))")
        for i in range(60)
    ]
    for structures in (records, sentences):
        outcome = fb.compare(structures, [i % 2 for i in range(60)], contenders=names, minutes=MINUTES)
        assert min(x.score.figure for x in outcome.contenders[:-1]) > 0.6
    outcome = fb.compare(trees, contenders=names, minutes=MINUTES)
    assert min(x.score.figure for x in outcome.contenders[:-1]) > 0.6


def test_pytorch_keeps_its_random_numbers():
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fb.compare(TEXTS[:40], LABELS[:40], contenders=["bilstm"], minutes=MINUTES)
    assert torch.equal(torch.rand(3), expected)


def test_what_read_returns_can_be_compared(tmp_path, stubs):
    path = tmp_path / "a.csv"
    path.write_text(
        "text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(TEXTS, LABELS, strict=True))
    )
    outcome = fb.compare(read(str(path)), contenders=["foldbatch", "linear"])
    assert outcome.source == str(path)
    assert outcome.as_dict()["contenders"][0]["title"] == "foldbatch"
    assert replace(outcome, seconds=1.0).seconds == 1.0
    assert "<pre>" in outcome._repr_html_()
