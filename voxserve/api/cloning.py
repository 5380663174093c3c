"""The reference clip that a request speaks with: its own, or that of an uploaded voice."""

from dataclasses import replace

from voxserve.api.clips import Clips, with_text
from voxserve.api.schemas import VoiceFields
from voxserve.api.speech_request import SpeechPlan
from voxserve.api.voice_store import VoiceStore
from voxserve.errors import InvalidRequestError
from voxserve.plugin import HostLogic


async def with_clip(
    plan: SpeechPlan, fields: VoiceFields, clips: Clips, voices: VoiceStore, host: HostLogic
) -> SpeechPlan:
    """The plan with its clip, if it has one. A clip of its own wins over the voice, which stock
    clients must always name.

    Raises InvalidRequestError for what is wrong with the clip, UnavailableError when the decoders
    are busy.
    """
    request = plan.request
    given, text = clip_fields(fields)
    speaker_only = bool(fields.x_vector_only_mode)
    if given is not None:
        clip = await clips.given(given, host.spec)
        return replace(
            plan,
            request=replace(
                request, voice=None, clip=with_text(clip, text), speaker_only=speaker_only
            ),
        )
    built_in = {voice.name for voice in host.info.voices}
    stored = None if request.voice in built_in else voices.get(request.voice)
    if stored is None:
        if speaker_only:
            raise _without_clip("x_vector_only_mode")
        return plan
    clip = await clips.decoded(stored.key, lambda: voices.audio(stored), host.spec)
    return replace(
        plan,
        request=replace(
            request,
            clip=with_text(clip, stored.ref_text),
            speaker_only=speaker_only or stored.ref_text is None,
        ),
    )


def clip_fields(fields: VoiceFields) -> tuple[str | bytes | None, str | None]:
    """`ref_audio` and `ref_text`, however they are spelled.

    Raises InvalidRequestError when both spellings are used, or a text comes without its clip.
    """
    given, text = fields.ref_audio or None, fields.ref_text or None
    for reference in fields.references or ():
        audio = reference.ref_audio or reference.audio_path
        if given is not None or audio is None or (reference.ref_audio and reference.audio_path):
            raise InvalidRequestError(
                "references takes one audio_path or ref_audio, and none beside it",
                param="references",
            )
        given, text = audio, reference.text or text
    if text is not None and given is None:
        raise _without_clip("ref_text")
    return given, text


def _without_clip(name: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name} is given, but ref_audio is not", param=name)
