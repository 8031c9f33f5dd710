"""The list of mutants is about the package as it is, and its command notices one that survives."""

from unittest import mock

import pytest

from tests import mutants
from tests.mutants import MUTANTS, ROOT, Mutant


def test_what_a_mutant_replaces_stands_once_in_its_file() -> None:
    for mutant in MUTANTS:
        text = (ROOT / "foldbatch" / mutant.file).read_text()
        assert text.count(mutant.old) == 1, mutant.name
        compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")


def test_a_mutant_that_survives_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = {"sick": (False, "1 passed"), "well": (True, "FAILED a law")}
    text = (ROOT / "foldbatch" / "errors.py").read_text()
    few = [Mutant(name, "errors.py", "class FoldbatchError(", name, (name,)) for name in verdicts]

    def fails(folder, tests, engine, programs):
        found = (folder / "foldbatch" / "errors.py").read_text()
        if found == text:
            return False, "1 passed"
        assert found == text.replace("class FoldbatchError(", *tests)
        return verdicts[tests[0]]

    with mock.patch.object(mutants, "fails", fails):
        assert mutants.check(few, 1) == 1
        assert mutants.check(few[1:], 1) == 0
    with mock.patch.object(mutants, "fails", lambda *_: (True, "FAILED")):
        assert mutants.check(few[1:], 1) == 1
    said = capsys.readouterr().out
    assert "SURVIVED sick" in said and "caught   well" in said and "1 of 2 caught" in said
    assert "fails without a mutant: well on numpy" in said
