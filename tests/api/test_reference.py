"""`/docs` shows all of the OpenAPI document, and loads nothing from anywhere."""

import re

from tests.api.server_process import ServerProcess
from voxserve.api.app import create_app
from voxserve.api.reference import page
from voxserve.config import Config


def test_every_operation_and_field_is_on_the_page(server: ServerProcess) -> None:
    document = server.client.get("/openapi.json").json()
    response = server.client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    for path, operations in document["paths"].items():
        assert f"<code>{path}</code>" in response.text
        for operation in operations.values():
            assert operation["summary"] in response.text
    for field in document["components"]["schemas"]["SpeechFields"]["properties"]:
        assert re.search(rf"<td>{field}\b", response.text), field
    assert "mp3, opus, aac, flac, wav, pcm" in response.text
    assert "number, from 0.25, to 4.0" in response.text


def test_nothing_is_loaded_from_another_host(server: ServerProcess) -> None:
    text = server.client.get("/docs").text
    assert not re.search(r"<script|<link|<img|src=|https?://|url\(|@import", text)
    assert server.client.get("/redoc").status_code == 404


def test_every_link_leads_somewhere(server: ServerProcess) -> None:
    text = server.client.get("/docs").text
    anchors = set(re.findall(r'id="(.*?)"', text))
    links = set(re.findall(r'href="#(.*?)"', text))
    assert links and links <= anchors
    for name in ("openapi.json", "playground"):
        assert f'href="{name}"' in text and server.client.get(f"/{name}").is_success


def test_what_the_document_says_is_shown_as_text() -> None:
    document = create_app(Config()).openapi()
    document["info"]["description"] = "<script>alert(1)</script>"
    assert "<script>" not in page(document)
