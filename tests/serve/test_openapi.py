"""The description names what there is, and its page loads nothing from elsewhere."""

import msgspec
import pytest

from foldbatch.recipes.configuration import Configuration, usual_model
from foldbatch.serve.service import Limits
from foldbatch.trees.formats import TRAINABLE

NEEDS = "HTTP needs foldbatch[serve]"
document = pytest.importorskip("foldbatch.serve.running", reason=NEEDS).document
predict = pytest.importorskip("foldbatch.serve.predict", reason=NEEDS)
Ask, ReadExample, read_body = predict.Ask, predict.ReadExample, predict.read_body


def test_the_body_is_described_with_all_that_is_read():
    described = document("sst", Limits(examples=7))
    assert described["openapi"].startswith("3.1")
    body = described["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert list(body["properties"]) == list(Ask.__struct_fields__)
    assert body["properties"]["examples"]["maxItems"] == 7
    msgspec.json.encode(described)


@pytest.mark.parametrize("format", TRAINABLE)
def test_the_samples_can_be_read(format):
    configuration = msgspec.convert(
        {"data": {"format": format}, "model": {"name": usual_model(format)}}, Configuration
    )
    content = document(format, Limits())["paths"]["/predict"]["post"]["requestBody"]["content"]
    body = msgspec.json.encode(content["application/json"]["example"])
    ((example,), _) = read_body(body, "application/json", configuration, Limits())
    assert isinstance(example, ReadExample), example
