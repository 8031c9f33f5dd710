"""Routes, called as a server would call them."""

import asyncio
import os
import signal
import threading
from contextlib import asynccontextmanager

import pytest

from foldbatch.serve.service import Limits, Service
from tests.serve.conftest import GOOD, NEEDS, save_model

httpx = pytest.importorskip("httpx", reason=NEEDS)
app_module = pytest.importorskip("foldbatch.serve.running", reason=NEEDS)
application = app_module.application
LIMITS = Limits()


@pytest.fixture(scope="module")
def service(saved):
    return Service(saved, "numpy")


@asynccontextmanager
async def client(service, limits=LIMITS, **options):
    app = application(service, limits, **options)
    events: asyncio.Queue = asyncio.Queue()
    answers: asyncio.Queue = asyncio.Queue()
    life = asyncio.ensure_future(app({"type": "lifespan"}, events.get, answers.put))
    await events.put({"type": "lifespan.startup"})
    assert (await answers.get())["type"] == "lifespan.startup.complete"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as opened:
        yield opened
    await events.put({"type": "lifespan.shutdown"})
    await life


def asked(scenario, service, *args, **options):
    async def run():
        async with client(service, *args, **options) as opened:
            return await scenario(opened)

    return asyncio.run(run())


def test_the_small_routes_answer(service):
    ending = []

    async def scenario(opened):
        about = (await opened.get("/")).json()
        assert about["format"] == "sst-binary" and about["classes"] == ["bad", "good"]
        assert about["example"] == "(2 (2 a) (3 (3 fine) (2 film)))"
        for path, state in (("/healthz", "alive"), ("/readyz", "ready"), ("/v2/health/ready", "ready")):
            assert (await opened.get(path)).json() == {"status": state}
        for path, status in (("/predict", 405), ("/predict/", 404), ("/nowhere", 404)):
            wrong = await opened.get(path)
            assert wrong.status_code == status
            assert wrong.json()["error"].startswith(f"request: expected POST /predict, found GET {path}")
        figures = await opened.get("/metrics")
        assert figures.headers["content-type"].startswith("text/plain")
        assert "foldbatch_queue_nodes 0.0" in figures.text
        ending.append(True)
        drained = await opened.get("/readyz")
        assert (drained.status_code, drained.json()) == (503, {"status": "draining"})
        assert (await opened.get("/healthz")).status_code == 200

    asked(scenario, service, draining=lambda: bool(ending))


def test_a_model_is_read_anew_at_a_signal_and_a_damaged_one_is_not(tmp_path, capsys):
    save_model(tmp_path / "model.safetensors")
    service = Service(tmp_path / "model.safetensors", "numpy")

    async def counted(opened, text):
        os.kill(os.getpid(), signal.SIGHUP)
        for _ in range(1000):
            if text in (await opened.get("/metrics")).text:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(text)

    async def scenario(opened):
        async def label():
            return (await opened.post("/predict", json={"examples": [GOOD]})).json()

        first = await label()
        save_model(service.path, seed=5)
        await counted(opened, 'foldbatch_reloads_total{outcome="ok"} 1.0')
        second = await label()
        assert first != second
        service.path.write_bytes(b"damaged")
        await counted(opened, 'foldbatch_reloads_total{outcome="failed"} 1.0')
        assert await label() == second

    asked(scenario, service)
    said = capsys.readouterr().err
    assert "read anew" in said and "the former model answers on" in said


def test_a_changed_file_is_read_anew_and_no_request_is_lost(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    save_model(path)
    service = Service(path, "numpy")
    statuses, done = [], []

    async def scenario(opened):
        async def ask():
            while not done:
                statuses.append((await opened.post("/predict", json={"examples": [GOOD]})).status_code)

        async def said(text):
            async with asyncio.timeout(30):
                while text not in capsys.readouterr().err:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        asking = asyncio.create_task(ask())
        before = service.model
        save_model(path, seed=5)
        await said("read anew")
        second = service.model
        path.write_bytes(b"damaged")
        await said("the former model answers on")
        assert before is not second is service.model
        path.unlink()  # nothing to read
        await asyncio.sleep(0.1)
        save_model(path, seed=6)
        await said("read anew")
        assert service.model is not second and len(statuses) > 3
        done.append(True)
        await asking

    asked(scenario, service, watch=0.02)
    assert {*statuses} == {200}


def test_an_unchanged_file_is_not_read_again(service, capsys):
    asked(lambda opened: asyncio.sleep(0.2), service, watch=0.01)
    assert capsys.readouterr().err == ""


def test_reading_ends_with_the_server_also_while_it_reads():
    reading, free = threading.Event(), threading.Event()

    class Slow:
        path = "model"

        def reload(self):
            reading.set()
            free.wait(60)

    async def scenario():
        asked = asyncio.Event()
        asked.set()
        watcher = asyncio.create_task(
            app_module._reload_when_asked(Slow(), app_module.ServerMetrics(), asked)
        )
        await asyncio.to_thread(reading.wait, 60)
        watcher.cancel()
        await asyncio.wait([watcher], timeout=10)
        free.set()
        return watcher.cancelled()

    assert asyncio.run(scenario())
