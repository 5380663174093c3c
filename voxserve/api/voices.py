"""Voices by the names that clients use."""

import difflib
from collections.abc import Mapping, Sequence

from voxserve.api.voice_store import StoredVoice
from voxserve.errors import InvalidRequestError
from voxserve.plugin import ModelInfo, Voice

OPENAI_VOICES = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"),
    *("marin", "nova", "onyx", "sage", "shimmer", "verse"),
)
_NAMES_SHOWN = 12


def resolve_voice(
    wanted: str | None,
    info: ModelInfo,
    aliases: Mapping[str, str],
    uploaded: Sequence[StoredVoice] = (),
) -> str | None:
    """The proper name of a voice, upper and lower case aside; the model's default for None.

    aliases: of the configuration, they win over OpenAI's names, which are spread over the model's
    voices in order. Raises InvalidRequestError with the nearest names.
    """
    if wanted is None:
        return info.default_voice
    folded = {alias.casefold(): target.casefold() for alias, target in aliases.items()}
    key = wanted.strip().casefold()
    key = folded.get(key, key)
    own, others = [voice.name for voice in info.voices], [stored.name for stored in uploaded]
    for name in (*own, *others):
        if name.casefold() == key:
            return name
    if key in OPENAI_VOICES:
        if not info.voices:
            return info.default_voice
        return info.voices[OPENAI_VOICES.index(key) % len(info.voices)].name
    names = {name.casefold(): name for name in (*others, *own)}
    shown = ", ".join(list(names.values())[:_NAMES_SHOWN])
    near = difflib.get_close_matches(key, names, n=3)
    hint = f"; nearest: {', '.join(names[name] for name in near)}" if near else ""
    there = f"there are: {shown}{hint}" if shown else "this model has none: send ref_audio instead"
    raise InvalidRequestError(
        f"voice {wanted[:100]!r} is unknown, {there}",
        param="voice",
        code="voice_not_found",
    )


def is_built_in(name: str, info: ModelInfo, aliases: Mapping[str, str]) -> bool:
    """Whether requests mean something by the name already, so that no upload can have it."""
    taken = (*(voice.name for voice in info.voices), *OPENAI_VOICES, *aliases)
    return name.casefold() in {known.casefold() for known in taken}


def public_voices(info: ModelInfo, uploaded: Sequence[StoredVoice] = ()) -> dict[str, object]:
    """The body of `GET /v1/audio/voices`: names as a flat list, and each voice in full."""
    voices = [*(_of_model(voice, info) for voice in info.voices), *map(of_upload, uploaded)]
    return {"object": "list", "voices": [voice["name"] for voice in voices], "data": voices}


def public_voice(
    name: str, info: ModelInfo, uploaded: Sequence[StoredVoice]
) -> dict[str, object] | None:
    """One entry of that list, by its name in any case."""
    for voice in info.voices:
        if voice.name.casefold() == name.casefold():
            return _of_model(voice, info)
    for stored in uploaded:
        if stored.name.casefold() == name.casefold():
            return of_upload(stored)
    return None


def of_upload(voice: StoredVoice) -> dict[str, object]:
    return {
        "id": voice.name,
        "name": voice.name,
        "description": voice.description or "",
        "languages": [],
        "default": False,
        "uploaded": True,
        "created": voice.created,
        "ref_text": voice.ref_text,
        "consent": voice.consent,
    }


def _of_model(voice: Voice, info: ModelInfo) -> dict[str, object]:
    return {
        "id": voice.name,
        "name": voice.name,
        "description": voice.description,
        "languages": list(voice.languages),
        "default": voice.name == info.default_voice,
        "uploaded": False,
    }
