"""The command that serves: its options become limits; what is missing is told. A server runs in tests/serve."""

import sys
from types import SimpleNamespace

import pytest

from foldbatch.cli import main
from foldbatch.commands import serve


def test_libraries_that_are_missing_are_named(monkeypatch, capsys):
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "uvicorn" else name)
    assert main(["serve", "model.safetensors"]) == 2
    assert "found no uvicorn; pip install -e '.[serve]'" in capsys.readouterr().err


def test_options_become_limits(monkeypatch):
    calls = []

    class Listening:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    running = SimpleNamespace(
        listen=lambda host, port: Listening(),
        run=lambda service, limits, listening, **options: calls.append((limits, options)),
    )
    monkeypatch.setattr(serve, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "foldbatch.serve.running", running)
    service = SimpleNamespace(model=SimpleNamespace(schema=None))
    monkeypatch.setattr("foldbatch.serve.service.Service", lambda *arguments: service)
    assert main(["serve", "m", "--batch-nodes", "77", "--deadline", "0.5", "--grace", "3"]) == 0
    ((limits, options),) = calls
    assert (limits.batch_nodes, limits.deadline, options["grace"]) == (77, 0.5, 3.0)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--port", "70000"], "expected a port from 0 to 65535, found 70000"),
        (["--host", ""], "expected an address, found none"),
        (["--host", " "], "expected an address, found none"),
        (["--batch", "0"], "expected a whole number of 1 or more, found 0"),
        (["--grace", "-1"], "expected seconds, 0 or more, found -1"),
        (["--deadline", "0"], "expected seconds above 0, found 0"),
    ],
)
def test_wrong_options_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(["serve", "model.safetensors", *arguments])
    assert message in capsys.readouterr().err
