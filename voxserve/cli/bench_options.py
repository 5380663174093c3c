"""The options that the benchmark's commands share, and what becomes of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voxserve.cli import options

if TYPE_CHECKING:
    from voxserve.bench.result import Result
    from voxserve.bench.targets import Kind, Target

Url = Annotated[str, typer.Argument(help="Root of the server.")]
TargetKind = Annotated[
    str,
    typer.Option("--target", help="voxserve, openai, vllm-omni, sglang-omni or nari."),
]
TransportKind = Annotated[
    str, typer.Option("--transport", help="http, or websocket (voxserve alone).")
]
Model = Annotated[str | None, typer.Option(help="Sent as the field model.")]
Voice = Annotated[str | None, typer.Option(help="Sent as the field voice.")]
Language = Annotated[str | None, typer.Option(help="Sent as the field language.")]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        help="A further field of every request; the value is JSON, or else text. Repeatable.",
    ),
]
Rates = Annotated[str, typer.Option(help="Requests a second, separated by commas.")]
Seeds = Annotated[str, typer.Option(help="A window of each rate for every seed.")]
WindowSeconds = Annotated[float, typer.Option(help="Seconds of each window.", min=1)]
SloTtfa = Annotated[int, typer.Option(help="Time to first audio to attain.", min=1)]
RefAudio = Annotated[
    Path | None,
    typer.Option("--ref-audio", help="A recording to send with every request, as ref_audio."),
]
RefText = Annotated[
    str | None,
    typer.Option("--ref-text", help="What is said in it: the words, or a file that holds them."),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="'NAME: VALUE'", help="Of every request. Repeatable."),
]
WorkloadName = Annotated[
    str, typer.Option("--workload", help="libritts, librispeech-pc, or a .tsv or .jsonl file.")
]
PoolHash = Annotated[
    str | None, typer.Option("--workload-pool-sha256", help="What the workload's hash must be.")
]
ForceLength = Annotated[
    bool,
    typer.Option(
        "--force-length",
        help="Fix each length by the text's words: for servers with random weights.",
    ),
]
FrameHz = Annotated[
    float, typer.Option(help="Frames a second of the model, for --force-length.", min=1)
]
Processes = Annotated[
    int, typer.Option(help="Client processes; 0 for one to every two cores.", min=0)
]
SampleRate = Annotated[int, typer.Option(help="Of the PCM, where responses do not name it.", min=1)]
Near = Annotated[
    float | None,
    typer.Option(help="Look for the capacity from this guess on, instead of given rates."),
]
Tests = Annotated[int, typer.Option(help="Rates that --near tries at most.", min=1)]
Burst = Annotated[int, typer.Option(help="Requests at once before the sweep.", min=0)]
Wait = Annotated[float, typer.Option(help="Seconds to wait for the last ones.", min=1)]
Leave = Annotated[
    float,
    typer.Option(help="Share of clients that go away in the middle of their speech.", min=0, max=1),
]
Label = Annotated[str | None, typer.Option(help="Name of the result in tables and pictures.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the result here.")]
Picture = Annotated[
    Path | None, typer.Option("--plot", help="Draw the result here (.png, .svg, .pdf).")
]


def target(
    kind: str,
    url: str,
    transport: str,
    fields: tuple[str | None, str | None, str | None],
    params: list[str] | None,
    force_length: bool,
    frame_hz: float,
    buffered: bool = False,
) -> "Target":
    """The target that the options name. fields: model, voice, language."""
    from voxserve.bench.targets import KINDS, Target

    if kind not in KINDS:
        options.stop(f"--target {kind} is not one of {', '.join(KINDS)}")
    if transport not in ("http", "websocket"):
        options.stop(f"--transport {transport} is not http or websocket")
    if not url.startswith(("http://", "https://")):
        options.stop(f"{url} is not an http:// or https:// URL")
    known: Kind = kind
    model, voice, language = fields
    return Target(
        kind=known,
        url=url,
        transport=transport,  # type: ignore[arg-type]
        model=model,
        voice=voice,
        language=language,
        params=tuple(map(_param, params or [])),
        force_length=force_length,
        frame_s=1 / frame_hz,
        buffered=buffered,
    )


def with_clip(aim: "Target", audio: Path | None, text: str | None) -> "Target":
    """The same target, asked for the voice of a recording."""
    from voxserve.bench.targets import Clip

    if audio is None:
        if text is not None:
            options.stop("--ref-text is of no use without --ref-audio")
        return aim
    if text is not None and text.endswith(".txt"):
        try:
            text = Path(text).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            options.stop(f"--ref-text {text}: {error}")
    return replace(aim, clip=Clip.read(audio, text))


def headers(given: list[str] | None) -> dict[str, str]:
    pairs = {}
    for line in given or []:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            options.stop(f"--header {line} is not NAME: VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


def numbers(name: str, text: str) -> tuple[float, ...]:
    """The positive numbers of a comma-separated option."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        options.stop(f"{name} {text} is not a list of numbers")
    if not values or min(values) <= 0:
        options.stop(f"{name} {text}: each must be above 0")
    return values


def seeds(text: str) -> tuple[int, ...]:
    if not all(part.strip().isdigit() for part in text.split(",")):
        options.stop(f"--seeds {text} is not a list of whole numbers")
    return tuple(int(part) for part in text.split(","))


def check_outputs(json_: Path | None, picture: Path | None) -> None:
    """Stop before a long measurement whose outcome could not be written."""
    if json_ and not json_.absolute().parent.is_dir():
        options.stop(f"--json {json_}: there is no such folder")
    if picture:
        from voxserve.bench import pictures

        pictures.check(picture)


def report(made: "Result", json_: Path | None, picture: Path | None) -> None:
    """Print a result and write what was asked for; exit code 1 when it is invalid."""
    from voxserve.bench.display import show
    from voxserve.bench.plot import plot
    from voxserve.bench.result import write

    show(made)
    if json_:
        write(made, json_)
    if picture:
        plot([made], picture)
    if not made.valid:
        raise typer.Exit(1)


def _param(line: str) -> tuple[str, object]:
    name, equals, value = line.partition("=")
    if not (name and equals):
        options.stop(f"--param {line} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
