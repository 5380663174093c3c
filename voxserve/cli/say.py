"""`voxserve say`: speak one text into a file, through the engine but without HTTP."""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from voxserve.cli import options

if TYPE_CHECKING:
    from voxserve.api.engine_client import EngineClient
    from voxserve.api.schemas import VoiceFields
    from voxserve.api.speech_request import SpeechPlan
    from voxserve.api.units import WholeUnit
    from voxserve.audio.output import Output
    from voxserve.cli.model import ModelAtHand
    from voxserve.config import Config
    from voxserve.requests import SpeechRequest

STANDARD = "-"
_OTHER_ENDINGS = {"ogg": "opus"}


def say(
    text: Annotated[str | None, typer.Argument(help="What to say; - reads it from stdin.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the text from this file, or - .")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write; - writes to stdout.")
    ] = Path("speech.wav"),
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="mp3, opus, aac, flac, wav or pcm.  [default: by the file's ending, else wav]",
        ),
    ] = None,
    speed: Annotated[
        float | None, typer.Option(help="0.25 to 4, at the same pitch.  [default: 1]")
    ] = None,
    sample_rate: Annotated[
        int | None, typer.Option(help="In Hz.  [default: the model's own]", metavar="HZ")
    ] = None,
    voice: Annotated[
        str | None, typer.Option(help="As listed by `voxserve voices`, uploaded ones among them.")
    ] = None,
    language: Annotated[str | None, typer.Option(help="As the model names it.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="The same seed gives the same audio.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Hub id, folder or built-in name.", metavar="MODEL")
    ] = None,
    voices_dir: options.VoicesDir = None,
    config: options.ConfigFile = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    load_format: options.LoadFormat = None,
    deterministic: options.Deterministic = None,
    trace: options.Trace = None,
    set_: options.Settings = None,
) -> None:
    """Speak a text into a file, without a server."""
    words = _words(text, file)
    flags = options.engine_flags(model, load_format, device, dtype) | {
        "engine.deterministic": deterministic,
        "engine.trace": trace,
        "engine.slots": 1,
        "api.voices_dir": voices_dir,
        "api.log_level": "warning",
    }
    settings = options.configure(config, set_, flags)

    from voxserve.api.schemas import VoiceFields, parse
    from voxserve.api.speech_request import resolve
    from voxserve.cli.model import find

    model_at_hand = find(settings)
    host = model_at_hand.host
    asked: dict[str, object] = {
        "voice": voice,
        "language": language,
        "seed": seed,
        "speed": speed,
        "sample_rate": sample_rate,
    }
    fields, _ = parse(VoiceFields, asked, strict_fields=True)
    ending = output.suffix[1:].lower()
    kind = format_ or _OTHER_ENDINGS.get(ending, ending) or "wav"
    plan = resolve(
        fields, host, settings, format_=kind, silence=False, uploaded=model_at_hand.uploaded
    )
    plan = plan.with_text(words, settings.api.max_input_chars)
    asyncio.run(_say(settings, model_at_hand, fields, plan, output))


def _words(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        options.stop("name either a text or a file with --file")
    try:
        if STANDARD in (text, str(file)):
            return sys.stdin.read()
        return text or "" if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        options.stop(f"cannot read {file or 'stdin'}: {error}")


async def _say(
    settings: "Config", model: "ModelAtHand", fields: "VoiceFields", plan: "SpeechPlan", file: Path
) -> None:
    from voxserve.api.cloning import with_clip
    from voxserve.api.engine_client import EngineClient
    from voxserve.api.units import whole_units
    from voxserve.cli.progress import until_ready

    plan = await with_clip(plan, fields, model.clips(settings), model.voices, model.host)
    request, output = plan.request, plan.output
    units = whole_units(model.host, request, settings.engine.context)
    engine = EngineClient(settings)
    await engine.start()
    try:
        await until_ready(engine)
        begin = time.monotonic()
        with _opened(file) as sink:
            audio_s = await _speak(engine, units, request, output, sink)
        took_s = time.monotonic() - begin
    finally:
        await engine.close()
    typer.echo(f"{file}: {audio_s:.2f} s of audio in {took_s:.2f} s, seed {request.seed}", err=True)


async def _speak(
    engine: "EngineClient",
    units: "list[WholeUnit]",
    request: "SpeechRequest",
    output: "Output",
    sink: BinaryIO,
) -> float:
    """Write the audio as it is made, or in one piece to a file, which then tells its length.

    Returns its seconds.
    """
    from voxserve.api.joined_stream import JoinedStream, Pace
    from voxserve.api.units import UnitQueue
    from voxserve.cli.progress import speaking
    from voxserve.wire import PcmChunk

    # Whoever reads from stdout, even when it is a file, wants it soon.
    encoder = output.open(whole=sink is not sys.stdout.buffer and sink.seekable())
    made_samples = written = 0
    stream = JoinedStream(
        UnitQueue(units, closed=True),
        lambda index, prompt, ttfa_s, ahead_s: engine.submit(
            prompt, ttfa_s=None, speed=output.speed
        ),
        Pace(None, None, output.native_hz * output.speed),
        seed=request.seed,
        max_frames=None,
    )
    stream.start()
    with closing(encoder), speaking() as show:
        async for _, message in stream:
            if isinstance(message, PcmChunk):
                piece = encoder.feed(message.pcm)
                sink.write(piece.data)
                written += piece.samples
                made_samples += len(message.pcm) // 2
                made_s = made_samples / output.native_hz / output.speed
                stream.taken(made_s)
                show(made_s)
        piece = encoder.finish()
        sink.write(piece.data)
    return (written + piece.samples) / output.pcm_hz


@contextmanager
def _opened(output: Path) -> Iterator[BinaryIO]:
    """The file to write. A regular file is removed again when the speech fails or is broken off."""
    if str(output) == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = output.open("wb")
    except OSError as error:
        options.stop(f"cannot write {output}: {error.strerror}")
    with file, ExitStack() as undo:
        if output.is_file():
            undo.callback(output.unlink)
        yield file
        undo.pop_all()
