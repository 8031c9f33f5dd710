"""The route of predictions: each refusal has its status, and one example's fault is told of it alone."""

import asyncio
import json
import threading

import pytest

from foldbatch.cli import main
from foldbatch.errors import WalkNote
from foldbatch.serve.service import Batching, Limits, Service
from tests.serve.conftest import BAD, GOOD, LONG, NEEDS, save_model

ServerMetrics = pytest.importorskip("foldbatch.serve.predict", reason=NEEDS).ServerMetrics
Predict = pytest.importorskip("foldbatch.serve.predict", reason=NEEDS).Predict
LIMITS = Limits()
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def service(saved):
    return Service(saved, "numpy")


def post(service, *bodies, headers=JSON, limits=LIMITS, answer=None, chunks=1, leave=None):
    """Return status, headers and content of the answer to each of several requests that come at once."""

    async def one(predict, body):
        size = len(body or b"") // chunks + 1
        sent, pieces = [], [(body or b"")[k * size : (k + 1) * size] for k in range(chunks)]
        messages = [{"type": "http.request", "body": p, "more_body": True} for p in pieces]
        messages[-1]["more_body"] = False
        if body is None:
            messages.clear()

        async def receive():
            if messages:
                return messages.pop(0)
            await asyncio.sleep(100 if leave is None else leave)
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        named = [(name.encode(), value.encode()) for name, value in headers.items()]
        await predict({"type": "http", "headers": named}, receive, send)
        if not sent:
            return None
        content = b"".join(message.get("body", b"") for message in sent)
        return sent[0]["status"], dict(sent[0]["headers"]), json.loads(content)

    async def run():
        batching = Batching(answer or service.answer, limits)
        batching.start()
        metrics = ServerMetrics()
        predict = Predict(service, batching, limits, metrics)
        try:
            results = await asyncio.gather(*(one(predict, body) for body in bodies))
        finally:
            batching.stop()
        return [*results, metrics.text().decode()]

    return asyncio.run(run())


def examples(*listed, **options):
    return json.dumps({"examples": listed} | options).encode()


def test_answers_equal_those_of_the_command(service, saved, tmp_path, capsys):
    (tmp_path / "trees.txt").write_text(f"{GOOD}\n{BAD}\n{LONG}\n")
    for nodes in ([], ["--nodes"]):
        assert main(["predict", str(saved), str(tmp_path / "trees.txt"), "--backend", "numpy", *nodes]) == 0
        expected = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        (status, _, content), _ = post(service, examples(GOOD, BAD, LONG, nodes=bool(nodes)))
        assert status == 200 and content["predictions"] == expected


NO_TREE = ["no"] * 1001  # too long a sentence to be read as one


def test_a_sentence_without_brackets_is_answered_with_a_warning(service):
    ((status, _, content), _) = post(service, examples(["good", "film"], "good film", GOOD))
    first, second, tree = content["predictions"]
    assert status == 200 and first == second and first["label"]
    assert "branches to the right" in first.pop("warning") and first == tree


def test_a_bad_example_fails_neither_its_own_request_nor_others(service):
    bodies = [examples(GOOD, "(1 (1", NO_TREE, LONG), examples(BAD), examples(NO_TREE)]
    first, second, third, figures = post(service, *bodies)
    assert first[0] == second[0] == 200 and third[0] == 422
    good, brackets, words, long = first[2]["predictions"]
    assert good["label"] and long["label"] and second[2]["predictions"][0]["label"]
    assert "example 1:1:" in brackets["error"]
    assert words["error"].startswith("predict at example 2: expected a tree, found list")
    assert third[2]["predictions"][0]["error"].startswith("predict at example 0: expected a tree")
    assert 'foldbatch_refused_examples_total{reason="model"} 2.0' in figures
    assert 'foldbatch_refused_examples_total{reason="format"} 1.0' in figures


@pytest.mark.parametrize(
    "body, options, status, message",
    [
        (b"{", {}, 400, "expected a JSON object"),
        (b"a", {"headers": {"content-type": "image/png"}}, 415, "found image/png"),
        (examples(GOOD, GOOD), {"limits": Limits(examples=1)}, 422, "expected 1 examples or fewer"),
        (examples(GOOD), {"limits": Limits(body=10)}, 413, "expected 10 bytes or fewer"),
        (examples(GOOD), {"limits": Limits(body=10), "chunks": 3}, 413, "expected 10 bytes or fewer"),
        (examples(GOOD), {"headers": {"content-encoding": "gzip"}}, 415, "no Content-Encoding, found gzip"),
        (examples(GOOD, deadline=1e-9), {}, 408, "expected all answers in time"),
        (examples(GOOD), {"limits": Limits(deadline=1e-9)}, 504, "expected all answers in time"),
    ],
)
def test_a_request_that_is_refused_as_a_whole(service, body, options, status, message):
    (found, _, content), figures = post(service, body, **options)
    assert found == status and message in content["error"]
    assert f'foldbatch_requests_total{{status="{status}"}} 1.0' in figures


def test_a_length_that_is_announced_is_refused_before_the_body_is_read(service):
    headers = JSON | {"content-length": "999999999"}
    (status, answered, _), _ = post(service, b"", headers=headers)
    assert status == 413 and answered[b"connection"] == b"close"


def test_a_body_that_does_not_come_is_408(service):
    (status, answered, content), _ = post(service, None, limits=Limits(deadline=0.02))
    assert status == 408 and answered[b"connection"] == b"close"
    assert content["error"].startswith("body: expected a body in 0.02 s, found 0 bytes of it")


def test_bytes_of_all_requests_are_bounded_and_given_back(service):
    body = examples(GOOD, *["x" * 1000])
    limits = Limits(held=len(body) + 1)
    *answered, _ = post(service, *[body] * 3, limits=limits)
    assert [status for status, _, _ in answered] == [200, 503, 503]
    assert answered[1][1][b"connection"] == b"close" and int(answered[1][1][b"retry-after"]) >= 1
    assert "expected room in 1," in answered[1][2]["error"]
    (status, *_), _ = post(service, body, limits=Limits(held=1), chunks=4)  # alone, any body passes
    assert status == 200


@pytest.mark.parametrize("end", ["answered", "too large", "late", "no JSON", "gone"])
def test_no_bytes_stay_counted(service, end):
    async def run():
        limits = Limits(body=900, deadline=0.05)
        batching = Batching(service.answer, limits)
        batching.start()
        predict = Predict(service, batching, limits, ServerMetrics())
        body = {"too large": b"x" * 1000, "no JSON": b"{"}.get(end, examples(GOOD))
        more = end in ("late", "gone")
        messages = [{"type": "http.request", "body": body, "more_body": more}]
        messages += [{"type": "http.disconnect"}] * (end == "gone")

        async def receive():
            if messages:
                return messages.pop(0)
            return await asyncio.sleep(100)

        async def send(message):
            pass

        await predict({"type": "http", "headers": []}, receive, send)
        batching.stop()
        return predict._retained

    assert asyncio.run(run()) == 0


def test_a_full_queue_is_503_with_the_time_to_come_again(service):
    *answered, _ = post(service, *[examples(GOOD, LONG)] * 3, limits=Limits(queue_nodes=10))
    statuses = [status for status, _, _ in answered]
    assert statuses == [200, 503, 503]
    assert int(answered[1][1][b"retry-after"]) >= 1 and "ask again later" in answered[1][2]["error"]


def test_an_error_of_the_server_is_500_and_stays_in_its_log(service, capsys):
    def fail(structures, nodes):
        raise KeyError("secret")

    (status, _, content), _ = post(service, examples(*[GOOD] * 100), answer=fail)
    assert status == 500 and "secret" not in json.dumps(content)
    assert capsys.readouterr().err.count("KeyError: 'secret'") == 1  # clients do not fill the disk


def test_what_a_walk_raises_for_an_example_is_its_answer_alone(service, capsys):
    def answer(structures, nodes):
        error = KeyError("text")
        error.add_note(WalkNote(0))
        return [{"result": 1}, error, {"result": 2}]

    (status, _, content), _ = post(service, examples(GOOD, GOOD, GOOD), answer=answer)
    told = "walk at example 1: expected an example that the walk can read, found KeyError: 'text'"
    assert (status, content["predictions"]) == (200, [{"result": 1}, {"error": told}, {"result": 2}])
    assert "KeyError: 'text'" in capsys.readouterr().err


def test_a_client_that_goes_away_gets_nothing_and_its_examples_do_not_run(service):
    ran, free = [], threading.Event()

    def hold(structures, nodes):
        ran.append(len(structures))
        free.wait(0.2)
        return [{}] * len(structures)

    answered, figures = post(
        service, examples(GOOD, GOOD, GOOD), answer=hold, limits=Limits(batch=1), leave=0.01
    )
    assert answered is None and 'status="499"} 1.0' in figures
    assert len(ran) < 3


def test_nodes_need_a_model_that_tells_them(tmp_path):
    save_model(tmp_path / "root.safetensors", task="root")
    (status, _, content), _ = post(
        Service(tmp_path / "root.safetensors", "numpy"), examples(GOOD, nodes=True)
    )
    assert status == 400 and content["error"].startswith(
        "nodes: expected a model that is trained on every node"
    )


def test_a_request_that_the_end_of_the_server_cuts_off_is_503(service, capsys):
    async def run():
        batching, sent = Batching(service.answer, LIMITS), []
        batching.start()
        batching.running = True  # so that nothing is answered

        async def receive():
            return body.pop() if body else await asyncio.sleep(100)

        async def send(message):
            sent.append(message)

        body = [{"type": "http.request", "body": json.dumps({"examples": [GOOD]}).encode()}]
        metrics = ServerMetrics()
        predict = Predict(service, batching, LIMITS, metrics)
        asked = asyncio.create_task(predict({"headers": []}, receive, send))
        await asyncio.sleep(0.01)
        asked.cancel()  # as uvicorn does when the grace has passed
        await asyncio.wait([asked])
        batching.stop()
        return sent, metrics.text()

    (head, body), figures = asyncio.run(run())
    assert head["status"] == 503
    assert {b"retry-after", b"connection"} <= dict(head["headers"]).keys()
    assert json.loads(body["body"])["error"].startswith("server: expected ")
    assert b'foldbatch_requests_total{status="503"} 1.0' in figures
    assert not capsys.readouterr().err


def test_everything_is_counted():
    metrics, other = ServerMetrics(), ServerMetrics()
    metrics.queue(3, 90)
    metrics.batch(4, 100, 0.02)
    metrics.request(200, 0.03)
    metrics.request(200, 0.03)
    metrics.refusals.labels("size").inc()
    metrics.reloads.labels("failed").inc()
    lines = metrics.text().decode().splitlines()
    for line in (
        "foldbatch_queue_examples 3.0",
        "foldbatch_queue_nodes 90.0",
        'foldbatch_batch_examples_bucket{le="4.0"} 1.0',
        "foldbatch_batch_nodes_sum 100.0",
        "foldbatch_request_seconds_count 2.0",
        'foldbatch_requests_total{status="200"} 2.0',
        'foldbatch_refused_examples_total{reason="size"} 1.0',
        'foldbatch_reloads_total{outcome="failed"} 1.0',
    ):
        assert line in lines
    assert b"foldbatch_request_seconds_count 0.0" in other.text()
