"""A server in a process of its own: it starts, answers, reads its model anew, and ends as it is asked to."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import foldbatch as fb
from tests.serve.clients import load, server, trees
from tests.serve.conftest import GOOD, LONG, NEEDS, save_model

EACH = 8  # requests of a client
running = pytest.importorskip("foldbatch.serve.running", reason=NEEDS)
ROOT = Path(__file__).resolve().parents[2]


def ask(address, path="/readyz", examples=None):
    body = None if examples is None else json.dumps({"examples": examples}).encode()
    request = Request(address + path, body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    return json.loads(text) if path != "/metrics" else text


def batches(address):
    return ask(address, "/metrics").split("foldbatch_batch_examples_count ")[1].split()[0]


def test_a_server_from_its_start_to_its_end(saved, tmp_path):
    model = tmp_path / "model.safetensors"
    shutil.copy(saved, model)
    command = [sys.executable, "-m", "foldbatch.cli", "serve", str(model), "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*command, "--backend", "numpy"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    ) as server:
        try:
            address = server.stdout.readline().split(" served at ")[1].strip()
            assert ask(address) == {"status": "ready"} and ask(address, "/healthz") == {"status": "alive"}
            good, bad, long = ask(address, "/predict", [GOOD, "(1 (1", LONG])["predictions"]
            assert good["label"] and "example 1:1:" in bad["error"] and long["label"]
            save_model(model, seed=9)
            server.send_signal(signal.SIGHUP)
            for _ in range(600):
                if 'foldbatch_reloads_total{outcome="ok"} 1.0' in ask(address, "/metrics"):
                    break
                time.sleep(0.05)
            assert ask(address, "/predict", [GOOD])["predictions"] != [good]
            host, port = address.removeprefix("http://").split(":")
            before = batches(address)
            with closing(HTTPConnection(host, int(port), timeout=60)) as connection:
                body = json.dumps({"examples": [LONG] * 1000, "nodes": True})
                connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
                while batches(address) == before:
                    time.sleep(0.01)
                server.send_signal(signal.SIGTERM)  # what is being answered is answered
                answer = connection.getresponse()
                assert answer.status == 200 and len(json.loads(answer.read())["predictions"]) == 1000
            assert server.wait(60) == 0
            assert "read anew" in server.stderr.read()
        finally:
            server.kill()


@pytest.mark.parametrize("times, said", [(1, "interrupted"), (2, "interrupted twice")])
def test_ctrl_c_ends_it_in_a_line(saved, times, said):
    command = [
        sys.executable,
        *"-m foldbatch.cli serve".split(),
        str(saved),
        *"--port 0 --backend numpy".split(),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as server:
        try:
            address = server.stdout.readline().split(" served at ")[1].strip()
            host, port = address.removeprefix("http://").split(":")
            with closing(HTTPConnection(host, int(port), timeout=60)) as connection:
                connection.request("POST", "/predict", headers={"Content-Length": "10"})  # it never comes
                ask(address)
                server.send_signal(signal.SIGINT)
                if times == 2:
                    time.sleep(0.5)
                    server.send_signal(signal.SIGINT)
                else:
                    connection.close()
                assert server.wait(60) == 130
            (line,) = server.stderr.read().splitlines()
            assert line.startswith(said)
        finally:
            server.kill()


def waited(true, seconds=60):
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def children(process):
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_several_processes_answer_at_one_port_and_are_read_anew(saved, tmp_path):
    """One that is killed is replaced, and a file that cannot be read replaces nothing; figures are added up."""
    model = tmp_path / "model.safetensors"
    shutil.copy(saved, model)
    options = ["--backend", "numpy", "--workers", "2", "--watch"]
    with server(model, *options, log=subprocess.PIPE) as (served, port):
        address = f"http://127.0.0.1:{port}"
        first = ask(address, "/predict", [GOOD])
        assert all(ask(address, "/predict", [GOOD]) == first for _ in range(20))
        waited(
            lambda: 'foldbatch_requests_total{status="200"} 21.0' in ask(address, "/metrics")
        )  # after answers
        workers = [int(child) for child in children(served) if "spawn_main" in command_of(child)]
        assert len(workers) == 2
        save_model(model, seed=9)
        waited(lambda: 'foldbatch_reloads_total{outcome="ok"} 2.0' in ask(address, "/metrics"))
        assert ask(address, "/predict", [GOOD]) != first
        model.write_bytes(b"damaged")
        waited(lambda: 'foldbatch_reloads_total{outcome="failed"} 2.0' in ask(address, "/metrics"))
        assert "predictions" in ask(address, "/predict", [GOOD])
        save_model(model, seed=9)
        os.kill(workers[0], signal.SIGKILL)
        waited(lambda: len({*children(served)} - {str(workers[0])}) >= 3)
        assert "predictions" in ask(address, "/predict", [GOOD])
        served.terminate()
        assert served.wait(60) == 0
        text = served.stderr.read()
        assert text.count("the former model answers on") == 2 and "Traceback" not in text
    assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]


def command_of(process):
    return Path(f"/proc/{process}/cmdline").read_text()


def test_processes_that_cannot_read_the_model_end_the_server(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"damaged")
    command = [*[sys.executable, "-m", "foldbatch", "serve"], *[path, "--port", "0", "--workers", "2"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert {line.partition(": expected")[0] for line in done.stderr.splitlines()} == {f"error: {path}"}


def test_an_address_in_use_is_told():
    with running.listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(fb.errors.ReadError, match=f"127.0.0.1:{port}: expected an address that is free"):
            running.listen("127.0.0.1", port)


def test_too_few_files_that_may_be_open_are_told():
    code = (
        "import resource as r\nfrom foldbatch.serve.running import listen\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (14, r.getrlimit(r.RLIMIT_NOFILE)[1]))\nlisten('127.0.0.1', 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert "expected 16 more files and sockets at once, found Too many open files; allow" in done.stderr


def test_each_of_64_clients_gets_its_own_answers(tmp_path):
    """Whatever bad requests share its batches, and whoever leaves."""
    path = tmp_path / "model.safetensors"
    save_model(path, size=16, scale=8)
    texts, wanted = trees(path, 200, "numpy")
    with server(path, "--backend", "numpy", log=subprocess.PIPE) as (served, port):
        met = asyncio.run(load(port, texts, wanted, 64, lambda asked: asked >= EACH))
        served.terminate()
        assert served.stderr.read() == ""
    assert not [what for what in met if what.startswith("wrong")]
    assert min(met[what] for what in ("right", "refused alone", "refused whole", "left")) > 5
    assert sum(met.values()) > 60 * EACH
