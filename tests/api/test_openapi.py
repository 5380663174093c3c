"""The OpenAPI document tells what the routes really take."""

from typing import Any

import pytest
from pydantic import BaseModel

from voxserve.api.app import create_app
from voxserve.api.openapi import BODIES
from voxserve.config import Config

APP = create_app(Config())
DOCUMENT = APP.openapi()


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    return dict(DOCUMENT["components"]["schemas"][kind.__name__])


def test_every_reference_leads_somewhere() -> None:
    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if "$ref" in node else set()
            return own.union(*map(references, node.values()))
        return set().union(*map(references, node)) if isinstance(node, list) else set()

    names = {reference.rsplit("/", 1)[1] for reference in references(DOCUMENT)}
    assert names <= set(DOCUMENT["components"]["schemas"])


def test_every_route_that_takes_a_body_tells_it() -> None:
    takes = {
        (path, method)
        for path, operations in DOCUMENT["paths"].items()
        for method in operations
        if method in ("post", "put", "patch")
    }
    assert takes == set(BODIES)


@pytest.mark.parametrize("kind", BODIES.values(), ids=lambda kind: kind.__name__)
def test_fields_are_those_of_the_server_and_described(kind: type[BaseModel]) -> None:
    properties = _schema(kind)["properties"]
    assert set(properties) == set(kind.model_fields)
    assert all(len(about["description"]) > 10 for about in properties.values())


def test_ranges_are_told() -> None:
    speech = DOCUMENT["paths"]["/v1/audio/speech"]["post"]["requestBody"]
    assert "multipart/form-data" in speech["content"]
    text = str(DOCUMENT["components"]["schemas"]["SpeechFields"])
    assert "'maximum': 4.0" in text and "'minimum': 0.25" in text and "'wav'" in text


def test_errors_have_one_shape_everywhere() -> None:
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            (content,) = operation["responses"]["default"]["content"].values()
            assert content["schema"]["$ref"].endswith("/Error")
            assert "422" not in operation["responses"]
