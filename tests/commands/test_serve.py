"""The command that serves: its options become limits; what is missing is told. A server runs in tests/serve."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from foldbatch.cli import main
from foldbatch.commands import serve
from foldbatch.serve.service import Limits

ROOT = Path(__file__).resolve().parents[2]


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
    assert (options["watch"], options["name"]) == (None, "")
    assert main(["serve", "m", "--watch", "--name", "sentiment-2"]) == 0
    assert (calls[1][1]["watch"], calls[1][1]["name"]) == (1.0, "sentiment-2")


def test_the_image_serves_with_options_that_there_are():
    """`docker` itself is not needed: what the Dockerfile runs is parsed as the command parses it."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    (entry,) = [
        json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines if line.startswith("ENTRYPOINT")
    ]
    (default,) = [
        json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD")
    ]  # indented: of HEALTHCHECK
    assert entry == ["foldbatch", "serve"]
    options = serve._parser("foldbatch serve", Limits()).parse_args(default)
    assert (str(options.model), options.host, options.port) == ("/model", "0.0.0.0", 8000)
    copied = {
        name
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    }
    assert all((ROOT / name).exists() for name in copied) and "foldbatch" in copied


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--port", "70000"], "expected a port from 0 to 65535, found 70000"),
        (["--host", ""], "expected an address, found none"),
        (["--host", " "], "expected an address, found none"),
        (["--batch", "0"], "expected a whole number of 1 or more, found 0"),
        (["--grace", "-1"], "expected seconds, 0 or more, found -1"),
        (["--deadline", "0"], "expected seconds above 0, found 0"),
        (["--workers", "0"], "expected a whole number of 1 or more, found 0"),
        (["--name", "a/b"], "expected letters, digits, '.', '_' and '-', found 'a/b'"),
    ],
)
def test_wrong_options_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(["serve", "model.safetensors", *arguments])
    assert message in capsys.readouterr().err
