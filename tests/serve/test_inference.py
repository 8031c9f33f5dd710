"""The Open Inference Protocol: the same predictions as tensors; what does not fit is refused, and the way out named."""

import json

import pytest

from foldbatch.recipes.fitting import SCRIPTED
from foldbatch.serve.service import Limits, Service
from tests.serve.conftest import BAD, GOOD, LONG, NEEDS, save_model

pytest.importorskip("httpx", reason=NEEDS)
asked = pytest.importorskip("tests.serve.test_app", reason=NEEDS).asked
inference = pytest.importorskip("foldbatch.serve.inference", reason=NEEDS)
MODEL = "/v2/models/tree_lstm"


@pytest.fixture(scope="module")
def service(saved):
    return Service(saved, "numpy")


def texts(*data, **changes):
    tensor = {"name": "examples", "datatype": "BYTES", "shape": [len(data)], "data": list(data)}
    return {"inputs": [tensor | changes.pop("input", {})]} | changes


def infer(service, body, headers=None):
    async def scenario(opened):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await opened.post(f"{MODEL}/infer", content=content, headers=headers)
        return answer.status_code, answer.json()

    return asked(scenario, service)


def test_the_models_tensors_are_described(service):
    async def scenario(opened):
        return (
            (await opened.get("/v2")).json(),
            (await opened.get(MODEL)).json(),
            await opened.get("/v2/models/other"),
        )

    server, model, unknown = asked(scenario, service)
    assert server["name"] == "foldbatch" and server["extensions"] == []
    assert model["inputs"] == [{"name": "examples", "datatype": "BYTES", "shape": [-1]}]
    assert [(tensor["name"], tensor["datatype"], tensor["shape"]) for tensor in model["outputs"]] == [
        ("label", "BYTES", [-1]),
        ("probabilities", "FP64", [-1, 2]),
    ]
    assert unknown.status_code == 404 and unknown.json()["error"]


def test_answers_are_those_of_predict(service):
    async def scenario(opened):
        plain = (await opened.post("/predict", json={"examples": [GOOD, BAD, LONG]})).json()["predictions"]
        tensors = (await opened.post(f"{MODEL}/infer", json=texts(GOOD, BAD, LONG, id="7"))).json()
        return plain, tensors

    plain, tensors = asked(scenario, service)
    label, shares = tensors["outputs"]
    assert (tensors["model_name"], tensors["id"]) == ("tree_lstm", "7")
    assert label["data"] == [entry["label"] for entry in plain] and label["shape"] == [3]
    assert shares["data"] == [share for entry in plain for share in entry["probabilities"].values()]
    assert shares["shape"] == [3, 2] and json.loads(shares["parameters"]["classes"]) == ["bad", "good"]


def test_some_outputs_a_column_and_a_warning(service):
    body = texts("good film", outputs=[{"name": "label"}], input={"shape": [1.0, 1]})
    status, content = infer(service, body | {"parameters": {"deadline": 5, "binary_data_output": True}})
    assert status == 200 and [output["name"] for output in content["outputs"]] == ["label"]
    assert "branches to the right" in content["parameters"]["warning"]


@pytest.mark.parametrize(
    "body, status, message",
    [
        (texts(GOOD, input={"datatype": "FP32"}), 400, "expected the datatype BYTES, found FP32"),
        (texts(GOOD, input={"name": "x"}), 400, "expected one input, 'examples', found 'x'"),
        (texts(GOOD) | {"inputs": texts(GOOD)["inputs"] * 2}, 400, "expected one input"),
        (texts(GOOD, input={"shape": [2]}), 422, "found [2] for 1"),
        (texts(GOOD, input={"shape": [1, 2]}), 422, "found [1, 2] for 1"),
        (texts(), 422, "expected the shape [N] for N texts, 1 or more"),
        (
            texts(GOOD, outputs=[{"name": "nodes"}]),
            400,
            "expected some of label, probabilities, found 'nodes'",
        ),
        (texts(GOOD, parameters={"nodes": True}), 400, "unknown field `nodes`"),
        (texts(GOOD, "(1 (1"), 422, "example 1:1:"),
        (texts(GOOD, 5), 422, "example 1: expected a text, found int"),
        (b"{", 400, "expected a request for inference"),
        (b"[" * 100_000, 400, "expected "),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(service, body, status, message):
    found, content = infer(service, body)
    assert found == status and message in content["error"] and "/predict" in content["error"]


def test_binary_tensors_are_refused(service):
    status, content = infer(service, b"{}\0\0\0\0", {"Inference-Header-Content-Length": "2"})
    assert status == 415 and "binary_data=False" in content["error"]


def test_records_are_texts_of_json():
    request = inference.read_inference(json.dumps(texts('{"a": 1}', "{", "[1]", 5)).encode(), {})
    record, broken, listed, number = inference.read_examples(request, SCRIPTED, Limits())
    assert (record.structure, listed.structure) == ({"a": 1}, [1])
    for refused in (broken, number):
        assert "expected a record as a text of JSON" in str(refused) and "/predict" in str(refused)


@pytest.mark.parametrize(
    "content, name, datatype, data",
    [
        ({"number": 1.5}, "number", "FP64", [1.5]),
        ({"result": ["a", [1.0]]}, "result", "BYTES", ['["a",[1.0]]']),
    ],
)
def test_numbers_and_results_are_tensors_too(content, name, datatype, data):
    request = inference.read_inference(json.dumps(texts("x")).encode(), {})
    (output,) = inference._inferred("m", [content], request).outputs
    assert (output.name, output.datatype, output.shape, output.data) == (name, datatype, [1], data)
    classes = [] if name == "number" else None
    assert [(tensor.name, tensor.datatype) for tensor in inference.outputs_of(classes)] == [(name, datatype)]


def test_the_name_of_the_model_may_be_given(tmp_path):
    save_model(tmp_path / "m.safetensors")

    async def scenario(opened):
        return (await opened.get("/v2/models/mine")).json()["name"], (await opened.get(MODEL)).status_code

    assert asked(scenario, Service(tmp_path / "m.safetensors", "numpy"), name="mine") == ("mine", 404)
