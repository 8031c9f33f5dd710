"""The description is of the model that answers: what it names is read, what is answered fits, a stranger's tool agrees."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

import foldbatch as fb
from foldbatch.recipes.configuration import Configuration, usual_model
from foldbatch.recipes.fitting import SCRIPTED
from foldbatch.schema import infer
from foldbatch.serve.service import Limits, ServedModel
from foldbatch.trees.formats import TRAINABLE
from tests.serve.clients import server
from tests.serve.conftest import NEEDS, save_model

openapi = pytest.importorskip("foldbatch.serve.openapi", reason=NEEDS)
document, sample_of = openapi.document, openapi.sample_of
predict = pytest.importorskip("foldbatch.serve.predict", reason=NEEDS)
page = pytest.importorskip("foldbatch.serve.page", reason=NEEDS).page
FOLDER = Path(__file__).parent
RECORDS = [{"age": 36, "tags": ["a"], "in": {"x": 1.5}}, {"age": 40, "tags": None}]


def configuration(format):
    return msgspec.convert(
        {"data": {"format": format}, "model": {"name": usual_model(format)}}, Configuration
    )


def model_of(format, task="root", classes=("a", "b"), schema=None):
    return ServedModel((), {"task": task, "classes": classes}, configuration(format), schema)


def served_records():
    program = fb.compile(fb.GetItem(0) >> infer(RECORDS).block(3) >> fb.Linear(2), "numpy")
    notes = {"task": "class", "classes": [False, True]}
    return ServedModel((program,), notes, configuration("jsonlines"), infer(RECORDS))


@pytest.mark.parametrize("format", TRAINABLE)
def test_examples_of_the_description_are_read(format):
    if format == "html":
        pytest.importorskip("lxml")
    model = model_of(format)
    paths = document("m", model, Limits())["paths"]
    body = paths["/predict"]["post"]["requestBody"]["content"]["application/json"]["example"]
    ((example,), _) = predict.read_body(msgspec.json.encode(body), "", model.configuration, Limits())
    assert isinstance(example, predict.ReadExample), example


def test_the_body_is_what_is_read():
    described = document("m", model_of("sst", "nodes"), Limits(examples=7))
    body = described["components"]["schemas"]["Ask"]
    assert described["openapi"] == "3.1.0" and not body["additionalProperties"]
    assert list(body["properties"]) == list(predict.Ask.__struct_fields__)
    assert body["properties"]["examples"]["maxItems"] == 7
    assert "const" not in body["properties"]["nodes"]
    other = document("m", model_of("sst", "root"), Limits())
    assert other["components"]["schemas"]["Ask"]["properties"]["nodes"]["const"] is False


def test_records_are_described_by_the_models_schema():
    model = served_records()
    schemas = document("m", model, Limits())["components"]["schemas"]
    fields = schemas["Record"]["properties"]
    assert fields["age"] == {"type": ["integer", "null"], "examples": [38]}
    assert fields["tags"]["items"]["type"] == ["string", "null"]
    assert fields["in"]["properties"]["x"]["type"] == ["number", "null"]
    assert sample_of(model) == {"age": 38, "tags": ["a"], "in": {"x": 1.5}}
    (answer,) = model.predict([sample_of(model)], nodes=False)
    assert schemas["Probabilities"]["required"] == list(answer["probabilities"]) == ["false", "true"]
    assert schemas["Label"] == {"type": "boolean"} and type(answer["label"]) is bool
    assert "warning" not in answer


def test_a_scripts_results_are_described_by_their_type():
    types = fb.Record({"a": fb.Vector(2), "b": fb.Map(fb.Scalar("int32"))})
    model = ServedModel((fb.compile(types, "numpy"),), {"task": None}, SCRIPTED)
    told = document("m", model, Limits())["components"]["schemas"]["Answer"]
    vector, numbers = told["properties"]["result"]["prefixItems"]
    assert (vector["minItems"], vector["maxItems"], numbers["items"]) == (2, 2, {"type": "integer"})
    assert sample_of(model) is None


class Loaded(HTMLParser):
    """What a page would load from elsewhere, and the addresses of its forms."""

    def __init__(self):
        super().__init__()
        self.addresses, self.forms = [], []

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.addresses += [named[key] for key in ("src", "href") if key in named]
        self.forms += [(named["data-method"], named["data-path"])] if tag == "form" else []


def test_the_page_shows_all_and_loads_nothing():
    described = document("m", model_of("sst", classes=("<script>alert(1)</script>",)), Limits())
    text = page(described)
    loaded = Loaded()
    loaded.feed(text)
    assert all(re.fullmatch(r"#\w+|openapi\.json", address) for address in loaded.addresses)
    assert not re.search(r"https?:|@import|url\(", text)
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text
    operations = {(method.upper(), path[1:]) for path, all_ in described["paths"].items() for method in all_}
    assert operations == set(loaded.forms)
    assert all(f'id="{name}"' in text for name in described["components"]["schemas"])
    assert {f"#{name}" for name in re.findall(r'"#/components/schemas/(\w+)', json.dumps(described))} <= {
        f"#{name}" for name in described["components"]["schemas"]
    }


def test_schemathesis_finds_nothing(tmp_path):
    """It sends requests that fit the description, and others, and compares statuses and answers with it."""
    pytest.importorskip("schemathesis", reason="needs schemathesis: pip install -e '.[around]'")
    save_model(tmp_path / "model.safetensors")
    options = ["--backend", "numpy", "--examples", "5"]
    with server(tmp_path / "model.safetensors", *options, log=subprocess.PIPE) as (served, port):
        done = subprocess.run(
            [
                *[sys.executable, "-m", "schemathesis.cli", "--config-file", FOLDER / "schemathesis.toml"],
                *["run", f"http://127.0.0.1:{port}/openapi.json", "--max-examples", "5", "--seed", "1"],
            ],
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "100"},
            capture_output=True,
            text=True,
            check=False,
        )
        served.terminate()
        assert served.stderr.read() == ""
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert done.returncode == 0 and tested and int(tested[1]) == 11, done.stdout[-3000:]
