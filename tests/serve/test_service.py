"""A saved model answers batches, refuses single examples, and is read anew."""

import gc
import io
import sys
import weakref

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError, ExamplePlace, ReadError
from foldbatch.serve.service import MAX_LINE, Service, log, one_line
from foldbatch.system import files
from tests.serve.conftest import BAD, GOOD, LONG, save_model

TREES = list(fb.trees.read_brackets([GOOD, BAD, LONG]))


@pytest.fixture
def service(tmp_path):
    save_model(tmp_path / "model.safetensors")
    return Service(tmp_path / "model.safetensors", "numpy")


@pytest.mark.parametrize("bad", [{0}, {2}, {1, 4}, {0, 1, 2, 3, 4, 5}])
def test_examples_that_cannot_be_read_are_refused_alone(service, bad, monkeypatch):
    examples = [["no"] * 1001 if k in bad else TREES[k % 3] for k in range(6)]
    answers = service.answer(examples)
    assert {k for k, answer in enumerate(answers) if isinstance(answer, ExampleError)} == bad
    (first, second, third) = service.answer(TREES)
    for number, answer in enumerate(answers):
        if number not in bad:
            assert answer["label"] == (first, second, third)[number % 3]["label"]


def test_an_example_that_an_error_names_costs_few_runs(service, monkeypatch):
    runs = []

    def predict(model, structures, *, nodes):
        runs.append(len(structures))
        if "bad" in structures:
            raise ExampleError(ExamplePlace("model", structures.index("bad"), "['a']"), "a tree", "none")
        return structures

    monkeypatch.setattr("foldbatch.serve.service.ServedModel.predict", predict)
    answers = service.answer([*range(40), "bad", *range(23)])
    assert runs.count(1) == 1 and len(runs) == 4 and isinstance(answers[40], ExampleError)
    assert [a for a in answers if not isinstance(a, Exception)] == [*range(40), *range(23)]


def test_any_error_of_an_example_stays_its_own(service, monkeypatch):
    def predict(model, structures, *, nodes):
        return [1 / structure for structure in structures]

    monkeypatch.setattr("foldbatch.serve.service.ServedModel.predict", predict)
    answers = service.answer([1, 2, 0, 4])
    assert isinstance(answers[2], ZeroDivisionError) and answers[:2] + answers[3:] == [1, 0.5, 0.25]


def test_a_new_file_is_read(service):
    before = service.answer(TREES)
    save_model(service.path, seed=7)
    assert service.answer(TREES) == before
    service.reload()
    assert service.answer(TREES) != before


def test_a_former_model_is_freed(tmp_path):
    save_model(tmp_path / "model.safetensors")
    loaded = []
    service = Service(tmp_path / "model.safetensors", "numpy", lambda: loaded.append(gc.collect()))
    former = weakref.ref(service.model.programs[0])
    service.answer(TREES)
    service.reload()
    assert former() is None and len(loaded) == 2


def test_a_damaged_file_leaves_the_former_model(service):
    before = service.answer(TREES)
    service.path.write_bytes(service.path.read_bytes()[:-9])
    with pytest.raises(ReadError, match="damaged"):
        service.reload()
    assert service.answer(TREES) == before
    service.path.unlink()
    with pytest.raises(OSError, match="No such file"):
        service.reload()


def rewritten(path, change):
    """Change the header or the arrays of a model's file; its digest is right again."""
    arrays, header = files.read(path, "model", "")
    change(header["notes"], arrays)
    files.write(path, "model", arrays, header)


def nan(notes, arrays):
    for name in arrays:
        if arrays[name].dtype.kind == "f":
            arrays[name] = arrays[name] * np.nan


CHANGES = {
    "classes 5": lambda notes, arrays: notes.update(classes=5),
    "no class": lambda notes, arrays: notes.update(classes=[]),
    "few classes": lambda notes, arrays: notes.update(classes=["good"]),
    "equal classes": lambda notes, arrays: notes.update(classes=["good", "good"]),
    "numbers as classes": lambda notes, arrays: notes.update(classes=[0.5, 1.5]),
    "task 7": lambda notes, arrays: notes.update(task=7),
    "task number": lambda notes, arrays: notes.update(task="number"),
    "task number without classes": lambda notes, arrays: notes.update(task="number", classes=[]),
    "no task": lambda notes, arrays: notes.pop("task"),
    "configuration x": lambda notes, arrays: notes.update(configuration="x"),
    "another format": lambda notes, arrays: notes.update(configuration={"data": {"format": "conllu"}}),
    "NaN": nan,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_cannot_serve_is_refused_first_and_later(service, change, capsys):
    before = service.answer(TREES)
    rewritten(service.path, change)
    with pytest.raises(ReadError):
        service.reload()
    assert service.answer(TREES) == before
    with pytest.raises(ReadError):
        Service(service.path, "numpy")


def test_a_model_of_another_format_is_refused(service):
    save_model(service.path, format="brackets")
    with pytest.raises(ReadError, match="expected a model of format sst-binary, found one of brackets"):
        service.reload()


def halved(numbers):
    x, turns = fb.tensor(float(numbers[0])), 0
    while x > 1:
        x, turns = x / 2, turns + 1
    return "halved", (turns, [x])


def test_a_program_of_a_script_reads_json_and_answers_with_its_results(tmp_path):
    program = fb.compile(halved)
    program.run([[2]])
    program.save(tmp_path / "own.safetensors")
    served = Service(tmp_path / "own.safetensors", trust=["tests.serve.test_service"])
    bad, *good = served.answer([[], [8], [0.5], [3]])
    assert isinstance(bad, IndexError)
    assert good == [{"result": ["halved", [n, [x]]]} for n, x in ((3, 1.0), (0, 0.5), (2, 0.75))]
    assert (served.model.name, served.model.notes) == ("halved", {"task": None})
    join = served.joining()  # it decides, so requests need not wait for each other's ends
    bad, *asked = [join(x) for x in ([], [8], [0.5], [3])]
    assert [each.result(20) for each in asked] == good and isinstance(bad.exception(20), IndexError)
    served.close()
    with pytest.raises(ReadError, match="trust"):
        Service(tmp_path / "own.safetensors")


def test_a_message_is_one_line_and_shows_what_a_terminal_would_obey(capsys):
    log("a\nserved at http://elsewhere\r\x1b[2J\udcff")
    log("x" * 5000)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "a\\nserved at http://elsewhere\\r\\x1b[2J\\udcff"
    assert second == "x" * MAX_LINE + "..."
    assert one_line("größe: 5 µm") == "größe: 5 µm"


def test_a_log_that_nobody_takes_is_left(monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    log("read anew")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    log("read anew")
    monkeypatch.setattr(sys, "stderr", None)
    log("read anew")
