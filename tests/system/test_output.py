"""What is shown, and what is remembered of objects and texts."""

import gc
import io
import weakref
from argparse import ArgumentTypeError
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from foldbatch.system import showing
from foldbatch.system.files import output_file, remove_partial, write_whole
from foldbatch.system.processes import no_garbage, set_aside
from foldbatch.system.remembering import remembered


def test_a_file_needs_its_folder_and_is_none(tmp_path: Path) -> None:
    assert output_file(str(tmp_path / "x")) == tmp_path / "x"
    with pytest.raises(ArgumentTypeError, match="a folder that exists"):
        output_file(str(tmp_path / "none" / "x"))
    with pytest.raises(ArgumentTypeError, match="expected a file, found the folder"):
        output_file(str(tmp_path))


def test_what_cannot_be_written_leaves_the_former_file(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    write_whole(file, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with mock.patch("os.fsync", full), pytest.raises(OSError, match="No space"):
        write_whole(file, b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("figures.json", b"old")]
    link = tmp_path / "link"
    link.symlink_to(file)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert file.read_bytes() == b"new"


def test_what_is_no_file_is_written_to_in_place() -> None:
    write_whole(Path("/dev/null"), b"away")
    assert not Path("/dev/null").is_file()


def test_an_error_names_the_file_that_the_user_named(tmp_path):
    """Not the temporary one, which is beside it."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "none" / "figures.json", tmp_path / "file" / "figures.json"):
        with pytest.raises(OSError) as raised:
            write_whole(path, b"")
        assert raised.value.filename == str(path)


def test_a_link_that_leads_to_itself_is_replaced(tmp_path):
    (tmp_path / "round").symlink_to("round")
    write_whole(tmp_path / "round", b"content")
    assert (tmp_path / "round").read_bytes() == b"content"


def test_what_was_written_half_is_removed_by_its_name(tmp_path):
    for name in (".a.json.0f.partial", ".epoch-1.json.0f.partial", ".b.json.0f.partial", "a.json"):
        (tmp_path / name).touch()
    remove_partial(tmp_path, ["a.json", "epoch-*.json"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.json.0f.partial", "a.json"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(file: io.StringIO, *, shown: bool = True) -> str:
    with showing.Bar("tracing", 40, shown=shown, file=file) as bar:
        bar.advance(10)
        bar.advance(20)
    return file.getvalue()


def test_a_bar_tells_what_is_done_and_how_far_it_is(monkeypatch):
    monkeypatch.setattr(showing, "BAR_DELAY", -1.0)
    text = drawn(Terminal())
    assert "tracing" in text
    assert "30/40" in text


@pytest.mark.parametrize(
    ("file", "shown", "patience"),
    [(io.StringIO(), True, -1.0), (Terminal(), False, -1.0), (Terminal(), True, 60.0)],
)
def test_there_is_none_in_a_file_or_unasked_or_of_a_short_task(monkeypatch, file, shown, patience):
    monkeypatch.setattr(showing, "BAR_DELAY", patience)
    assert drawn(file, shown=shown) == ""


class Thing: ...


def test_it_is_made_once_for_all_that_decides_it() -> None:
    made = []

    @remembered
    def pair(thing: Thing, name: str, *, many: bool = False) -> list[object]:
        made.append(name)
        return [name, many]

    one, other = Thing(), Thing()
    assert pair(one, "a") is pair(one, "a")
    assert pair(one, "a") is not pair(other, "a")
    assert pair(one, "b") == ["b", False]
    assert pair(one, "a", many=True) == ["a", True]
    assert made == ["a", "a", "b", "a"]


def test_it_goes_with_the_object() -> None:
    @remembered
    def copy(thing: Thing) -> Thing:
        return Thing()

    thing = Thing()
    gone = weakref.ref(copy(thing))
    del thing

    assert gone() is None


@pytest.mark.parametrize("enabled", [True, False])
def test_what_was_before_is_so_again(enabled: bool) -> None:
    """Also after an error, and within each other."""
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ValueError, match="x"), no_garbage():
            with no_garbage():
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise ValueError("x")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_what_was_set_aside_is_looked_through_once_more(monkeypatch) -> None:
    calls: list[str] = []
    names = ("unfreeze", "collect", "freeze")  # called in earnest they would look through all of the tests
    fake = SimpleNamespace(**{name: partial(calls.append, name) for name in names})
    monkeypatch.setattr("foldbatch.system.processes.gc", fake)
    set_aside()
    assert calls == list(names)
