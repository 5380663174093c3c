"""What the site holds beside the pages written by hand: the reference and the list of decisions.

Links from a page to files of the repository outside docs/ become plain names.
"""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from voxserve.api.app import create_app
from voxserve.config import Config

_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#]*)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = {"reference.md": _reference(), "decisions.md": _decisions(Path(config.docs_dir))}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    here = Path(config.docs_dir) / Path(page.file.src_uri).parent
    root = Path(config.docs_dir).resolve()

    def plain(link: re.Match[str]) -> str:
        inside = (here / link[2]).resolve().is_relative_to(root)
        return link[0] if inside else link[1]

    return _LINK.sub(plain, markdown.replace("](adr/)", "](decisions.md)"))


def _decisions(docs: Path) -> str:
    lines = ["# Decisions", ""]
    for file in sorted((docs / "adr").glob("*.md")):
        title = file.read_text().splitlines()[0].lstrip("# ")
        lines.append(f"- [{title}](adr/{file.name})")
    return "\n".join(lines) + "\n"


def _reference() -> str:
    """Every route and field, from the OpenAPI document that a server gives at /openapi.json."""
    document = create_app(Config()).openapi()
    lines = ["# Reference", "", "Made from the document at `/openapi.json`.", ""]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            lines += [f"## `{method.upper()} {path}`", "", operation.get("description", ""), ""]
            if "requestBody" in operation:
                lines += _fields(document, operation["requestBody"])
    return "\n".join(lines) + "\n"


def _fields(document: dict[str, Any], body: dict[str, Any]) -> list[str]:
    link = body["content"]["application/json"]["schema"]["$ref"]
    schema = document["components"]["schemas"][link.rsplit("/", 1)[1]]
    lines = ["| field | type | meaning |", "| --- | --- | --- |"]
    for name, about in schema["properties"].items():
        kinds = ", ".join(_kind(kind) for kind in about.get("anyOf", [about]) if _kind(kind))
        needed = " Needed." if name in schema.get("required", []) else ""
        lines.append(f"| `{name}` | {kinds} | {about['description']}{needed} |")
    return [*lines, ""]


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
    name = schema.get("type", "any")
    if name == "null" or schema.get("format") == "binary":
        return ""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum")
    limits = [f"from {low}" if low is not None else "", f"to {high}" if high is not None else ""]
    if "maxLength" in schema:
        limits.append(f"at most {schema['maxLength']} characters")
    return " ".join([name, *filter(None, limits)])
