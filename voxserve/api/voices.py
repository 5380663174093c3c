"""Voices by the names that clients use."""

import difflib
from collections.abc import Mapping

from voxserve.errors import InvalidRequestError
from voxserve.plugin import ModelInfo

OPENAI_VOICES = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"),
    *("marin", "nova", "onyx", "sage", "shimmer", "verse"),
)
_NAMES_SHOWN = 12


def resolve_voice(wanted: str | None, info: ModelInfo, aliases: Mapping[str, str]) -> str | None:
    """The model's own name of a voice, upper and lower case aside; its default for None.

    aliases: of the configuration, they win over OpenAI's names, which are spread over the model's
    voices in order. Raises InvalidRequestError with the nearest names.
    """
    if wanted is None:
        return info.default_voice
    names = {voice.name.casefold(): voice.name for voice in info.voices}
    folded = {alias.casefold(): target.casefold() for alias, target in aliases.items()}
    key = wanted.strip().casefold()
    key = folded.get(key, key)
    if key in names:
        return names[key]
    if key in OPENAI_VOICES:
        if not info.voices:
            return info.default_voice
        return info.voices[OPENAI_VOICES.index(key) % len(info.voices)].name
    shown = ", ".join(list(names.values())[:_NAMES_SHOWN])
    near = difflib.get_close_matches(key, names, n=3)
    hint = f"; nearest: {', '.join(names[name] for name in near)}" if near else ""
    raise InvalidRequestError(
        f"voice {wanted[:100]!r} is unknown, there are: {shown}{hint}",
        param="voice",
        code="voice_not_found",
    )


def public_voices(info: ModelInfo) -> dict[str, object]:
    """The body of `GET /v1/audio/voices`: names as a flat list, and each voice in full."""
    return {
        "object": "list",
        "voices": [voice.name for voice in info.voices],
        "data": [
            {
                "id": voice.name,
                "name": voice.name,
                "description": voice.description,
                "languages": list(voice.languages),
                "default": voice.name == info.default_voice,
            }
            for voice in info.voices
        ],
    }
