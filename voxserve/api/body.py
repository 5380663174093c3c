"""Request bodies: read under a cap and a time limit, then parsed as JSON or as a form."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request
from python_multipart.exceptions import FormParserError
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from voxserve.config import ApiConfig
from voxserve.errors import (
    BodyTimeoutError,
    BodyTooLargeError,
    InvalidRequestError,
    UnsupportedMediaTypeError,
)

MAX_DEPTH = 32
MAX_MARKS = 2**16
"""Commas and opening brackets of a JSON body, those inside of texts too: millions of tiny values
take seconds to parse, in which nobody is served."""
LARGE_FORM_BYTES = 64 * 2**10
"""A form of this size is decoded beside the event loop."""
MAX_FORM_FIELDS = 64
MAX_FILES = 1

_JSON = ("", "application/json", "text/plain", "application/octet-stream")
_URL_FORM = "application/x-www-form-urlencoded"
_MULTIPART_FORM = "multipart/form-data"


async def read_fields(request: Request, config: ApiConfig) -> tuple[dict[str, Any], bool]:
    """The fields of a JSON or form body, and whether every value came as text (a form), or as
    bytes if it was a file.

    Raises the 400, 408, 413 or 415 that the body deserves.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = media_type in _JSON or media_type.endswith("+json")
    if not (is_json or media_type in (_URL_FORM, _MULTIPART_FORM)):
        raise UnsupportedMediaTypeError(
            f"content type {media_type[:100]!r}: send application/json or a form"
        )
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise UnsupportedMediaTypeError(
            f"content encoding {encoding[:100]!r}: send the body as it is"
        )
    body = await _read(request, config)
    # curl -d labels a JSON body as a form.
    if is_json or (media_type == _URL_FORM and body.lstrip()[:1] in (b"{", b"[", b'"')):
        return parse_object(body), False
    if media_type == _URL_FORM and len(body) > LARGE_FORM_BYTES:
        return await asyncio.to_thread(_url_form, body), True
    if media_type == _URL_FORM:
        return _url_form(body), True
    return await _multipart_form(request.headers, body), True


def parse_object(body: bytes | str) -> dict[str, Any]:
    """A JSON object, at most `MAX_DEPTH` deep. Raises InvalidRequestError (`invalid_json`).

    Half surrogate pairs in escapes are let through: a WebSocket client may split text there.
    """
    try:
        text = body if isinstance(body, str) else body.decode("utf-8")
        if sum(map(text.count, ",[{")) > MAX_MARKS:
            raise _bad_json(f"has more than {MAX_MARKS} commas and brackets")
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise _bad_json(f"is nested more than {MAX_DEPTH} deep") from error
    except ValueError as error:
        raise _bad_json(f"is not valid: {str(error)[:100]}") from error
    if not isinstance(value, dict):
        raise _bad_json(f"is {_kind(value)}, must be an object")
    if _deeper_than(value, MAX_DEPTH):
        raise _bad_json(f"is nested more than {MAX_DEPTH} deep")
    return value


async def _read(request: Request, config: ApiConfig) -> bytes:
    limit = config.max_body_bytes
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise BodyTooLargeError(f"body has {announced} bytes, at most {limit}")
    body = bytearray()
    try:
        async with asyncio.timeout(config.body_timeout_s):
            async for piece in request.stream():
                body += piece
                if len(body) > limit:
                    raise BodyTooLargeError(f"body has more than {limit} bytes")
    except TimeoutError as error:
        raise BodyTimeoutError(
            f"the body took longer than {config.body_timeout_s:g} s to arrive"
        ) from error
    return bytes(body)


def _url_form(body: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(
            body.decode("utf-8"),
            keep_blank_values=True,
            max_num_fields=MAX_FORM_FIELDS,
            errors="strict",
        )
    except ValueError as error:
        raise InvalidRequestError(f"the form is not valid: {str(error)[:100]}") from error
    return dict(pairs)


async def _multipart_form(headers: Headers, body: bytes) -> dict[str, Any]:
    """A file becomes its bytes; the name that the client gave it is not kept."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(
        headers, pieces(), max_files=MAX_FILES, max_fields=MAX_FORM_FIELDS, max_part_size=len(body)
    )
    parser.spool_max_size = len(body)  # What is in memory already need not go to a disk.
    try:
        form = await parser.parse()
    except (MultiPartException, FormParserError, KeyError, ValueError) as error:
        raise InvalidRequestError(f"the form is not valid: {str(error)[:100]}") from error
    try:
        return {
            name: await value.read() if isinstance(value, UploadFile) else value
            for name, value in form.multi_items()
        }
    finally:
        await form.close()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _bad_json(what: str) -> InvalidRequestError:
    return InvalidRequestError(f"the JSON body {what}", code="invalid_json")


def _kind(value: object) -> str:
    match value:
        case list():
            return "an array"
        case str():
            return "a string"
        case None:
            return "null"
        case bool():
            return "a truth value"
    return "a number"


def _deeper_than(value: Any, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True
