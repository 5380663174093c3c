"""`/docs`: the OpenAPI document as one plain page, which loads nothing and runs nothing."""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_METHODS = ("get", "post", "put", "patch", "delete")
_LIMITS = {
    "minimum": "from {}",
    "maximum": "to {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    return HTMLResponse(page(request.app.openapi()), headers=HEADERS)


def page(document: Mapping[str, Any]) -> str:
    """The page for an OpenAPI 3.1 document."""
    style = files("voxserve.api").joinpath("web", "docs.css").read_text(encoding="utf-8")
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    operations = [
        (method, path, operations[method])
        for path, operations in document["paths"].items()
        for method in _METHODS
        if method in operations
    ]
    contents = "".join(_entry(*operation) for operation in operations)
    sections = "".join(_operation(*operation) for operation in operations)
    schemas = "".join(
        _schema(name, schema) for name, schema in document["components"]["schemas"].items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{style}</style></head><body>"
        f"<h1>{title}</h1><p>{escape(info['description'])} "
        'The document itself: <a href="openapi.json">openapi.json</a>. '
        "A page to try voices on, if the server has it: "
        '<a href="playground">playground</a>.</p>'
        f"<nav><ul>{contents}</ul></nav><main>{sections}<h2>Bodies</h2>{schemas}</main>"
        "</body></html>"
    )


def _anchor(method: str, path: str) -> str:
    return re.sub(r"\W+", "-", f"{method}{path}").strip("-")


def _entry(method: str, path: str, operation: Mapping[str, Any]) -> str:
    name = f"<b>{method.upper()}</b> <code>{escape(path)}</code>"
    return f'<li><a href="#{_anchor(method, path)}">{name}</a></li>'


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = [
        f'<section id="{_anchor(method, path)}"><h2><b>{method.upper()}</b> ',
        f"<code>{escape(path)}</code></h2><p>{escape(operation['summary'])}. ",
        f"{escape(operation.get('description', ''))}</p>",
    ]
    rows = [
        (parameter["name"], f"in the {parameter['in']}", _kind(parameter.get("schema", {})))
        for parameter in operation.get("parameters", ())
    ]
    if rows:
        parts.append(_table(("parameter", "", "type"), rows))
    if "requestBody" in operation:
        parts.append(f"<p>Body: {_content(operation['requestBody']['content'])}</p>")
    answers = [
        (status, answer.get("description", ""), _content(answer.get("content", {})))
        for status, answer in operation["responses"].items()
    ]
    parts.append(_table(("status", "", "content"), answers, raw=2))
    if not operation["security"]:
        parts.append("<p>Needs no key.</p>")
    return "".join([*parts, "</section>"])


def _content(content: Mapping[str, Any]) -> str:
    """Media types, each linked to its schema if that has a name. HTML."""
    shown = []
    for media_type, form in content.items():
        name = form.get("schema", {}).get("$ref", "").rpartition("/")[2]
        link = f' (<a href="#schema-{escape(name)}">{escape(name)}</a>)' if name else ""
        shown.append(f"<code>{escape(media_type)}</code>{link}")
    return ", ".join(shown)


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            field + (" (required)" if field in required else ""),
            _kind(about),
            about.get("description", ""),
        )
        for field, about in schema.get("properties", {}).items()
    ]
    table = _table(("field", "type", ""), rows) if rows else f"<p>{escape(_kind(schema))}</p>"
    return f'<section id="schema-{escape(name)}"><h3>{escape(name)}</h3>{table}</section>'


def _kind(schema: Mapping[str, Any]) -> str:
    """A type in words, with its limits."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_kind, schema["anyOf"])))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    kind = schema.get("type", "any")
    name = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if "items" in schema:
        name += f" of {_kind(schema['items'])}"
    return ", ".join([name, *_limits(schema)])


def _limits(schema: Mapping[str, Any]) -> Iterator[str]:
    for limit, words in _LIMITS.items():
        if limit in schema:
            yield words.format(schema[limit])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], raw: int | None = None) -> str:
    """raw: the column that is HTML already."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(
        "<tr>"
        + "".join(
            f"<td>{cell if number == raw else escape(cell)}</td>" for number, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{heads}</tr>{lines}</table>"
