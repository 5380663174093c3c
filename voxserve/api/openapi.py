"""The OpenAPI document. Bodies are read by hand (JSON or a form, under limits), so what FastAPI
cannot know of them is filled in here.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from voxserve.api.auth import OPEN_PATHS
from voxserve.api.elevenlabs_fields import SpeechBody
from voxserve.api.schemas import SpeechFields, VoiceUpload
from voxserve.audio.formats import FORMATS

_COMPONENTS = "#/components/schemas/"
_FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
_METHODS = ("get", "post", "put", "patch", "delete")

BODIES: dict[tuple[str, str], type[BaseModel]] = {
    ("/v1/audio/speech", "post"): SpeechFields,
    ("/v1/audio/voices", "post"): VoiceUpload,
    ("/v1/text-to-speech/{voice}", "post"): SpeechBody,
    ("/v1/text-to-speech/{voice}/stream", "post"): SpeechBody,
}
"""What a route takes, by path and method."""

FIELDS = {
    "input": "The text to speak.",
    "model": "The served name or one of its aliases; absent: the model that is there.",
    "voice": "A voice by name, in any case, or as an object with its `id`.",
    "instructions": "How to speak, in words, for models that take instructions.",
    "response_format": "Container and codec of the audio.",
    "sample_rate": "Samples a second of the audio; absent: the model's own.",
    "speed": "How fast to speak, with the pitch kept.",
    "language": "The language of the text; absent: found from it.",
    "task_type": "What kind of voice is asked for; absent: inferred from the other fields.",
    "ref_audio": "A clip to take the voice from: base64 or a data URI, 1 to 30 seconds.",
    "ref_text": "What is said in the reference clip.",
    "references": "The reference clip in the spelling of other servers.",
    "x_vector_only_mode": "Take only the timbre of the clip, not its words.",
    "seed": "The same seed draws the same noise; absent: drawn, and told in `X-Seed`.",
    "temperature": "Spread of the sampling.",
    "top_p": "Sample among the likeliest codes that together have this probability.",
    "top_k": "Sample among this many likeliest codes; -1: all.",
    "repetition_penalty": "Divides the odds of codes that came before.",
    "max_new_tokens": "Steps at most; absent: from the length of the text.",
    "text_normalization": "Whether numbers, dates and signs are written out before.",
    "timestamp_granularities": "Which times to tell beside the audio.",
    "on_unspeakable": "What text without anything to speak means: an error, or silence.",
    "initial_codec_chunk_frames": "A hint for the size of the first chunk, in frames.",
    "extra_params": "Parameters that the model declares itself.",
    "user": "Written to the log, nowhere else.",
    "metadata": "Up to 16 pairs, written to the log, nowhere else.",
    "stream": "false: one body of known length; else bytes as they are made.",
    "stream_format": "`sse`: server-sent events with base64 audio.",
    "name": "Letters, digits, dot, dash and underscore, 64 at most.",
    "audio": "The recording: a file of the form, base64 or a data URI.",
    "description": "Shown in the list of voices.",
    "text": "The text to speak.",
    "model_id": "A served name; names of ElevenLabs' own models mean the one that is there.",
    "voice_settings": "Of these only `speed` has a counterpart here.",
    "language_code": "The language of the text; absent: found from it.",
    "apply_text_normalization": "Whether numbers, dates and signs are written out before.",
    "consent": "Who agreed to the use of this voice, and when.",
}
"""What each field means; the long story is in docs/api.md."""

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code", "param", "request_id"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "request_id": {"type": ["string", "null"]},
            },
        }
    },
}
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "xi-api-key": {"type": "apiKey", "in": "header", "name": "xi-api-key"},
}


def install(app: FastAPI) -> None:
    """Serve this document at `/openapi.json`, made when it is first asked for."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to replace it


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the app's HTTP routes."""
    described = get_openapi(
        title="voxserve",
        version=app.version,
        description="Text to speech, sent while it is made.",
        routes=app.routes,
    )
    components = described.setdefault("components", {})
    components["schemas"] = {"Error": _ERROR}
    components["securitySchemes"] = _SECURITY
    for path, operations in described["paths"].items():
        for method in _METHODS:
            if method in operations:
                _complete(operations[method], path, method, components["schemas"])
    return described


def _complete(operation: dict[str, Any], path: str, method: str, schemas: dict[str, Any]) -> None:
    responses = operation["responses"]
    responses.pop("422", None)  # FastAPI's own validation, which no route here uses
    error = {"application/json": {"schema": {"$ref": f"{_COMPONENTS}Error"}}}
    responses["default"] = {"description": "An error", "content": error}
    operation["security"] = [] if path in OPEN_PATHS else [{}, *({name: []} for name in _SECURITY)]
    if (kind := BODIES.get((path, method))) is not None:
        operation["requestBody"] = _body(kind, schemas)
        if kind in (SpeechFields, SpeechBody):
            responses["200"] = _speech_response()


def _body(kind: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template=_COMPONENTS + "{model}")
    schemas.update(schema.pop("$defs", {}))
    # Unknown fields are taken and listed in a header, unless the server is strict.
    schema.pop("additionalProperties", None)
    for name, about in schema["properties"].items():
        about.pop("title", None)
        about.pop("default", None)
        about["description"] = FIELDS[name]
    if "input" in schema["properties"]:
        schema["required"] = ["input"]
    schemas[kind.__name__] = schema
    link = {"schema": {"$ref": _COMPONENTS + kind.__name__}}
    kinds = ("application/json", *_FORM_TYPES)
    return {"required": True, "content": dict.fromkeys(kinds, link)}


def _speech_response() -> dict[str, Any]:
    media_types = [form.content_type.partition(";")[0] for form in FORMATS.values()]
    audio = {"schema": {"type": "string", "format": "binary"}}
    events = {"text/event-stream": {"schema": {"type": "string"}}}
    headers = {
        "X-Sample-Rate": "Samples a second",
        "X-Seed": "The seed that the noise was drawn with",
        "X-Voice": "The voice that speaks",
        "X-Ignored-Fields": "Fields that this server does not know",
        "Server-Timing": "Milliseconds in the queue and to the first audio",
    }
    return {
        "description": "Audio as it is made, or in one piece",
        "content": {**dict.fromkeys(media_types, audio), **events},
        "headers": {
            name: {"description": what, "schema": {"type": "string"}}
            for name, what in headers.items()
        },
    }
