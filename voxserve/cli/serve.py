"""`voxserve serve`: start the server, and say on the terminal what it is up to."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voxserve.cli import options

if TYPE_CHECKING:
    from voxserve.api.service import Service
    from voxserve.plugin import ModelInfo

VOICES_SHOWN = 8


def serve(
    model: options.Model = None,
    config: options.ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="0 takes any free one.")] = None,
    served_name: Annotated[str | None, typer.Option(help="What clients call the model.")] = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    load_format: options.LoadFormat = None,
    slots: Annotated[int | None, typer.Option(help="Requests that run at once.")] = None,
    threads: Annotated[
        int | None,
        typer.Option(help="CPU threads inside one operation of a lane; else by the cores."),
    ] = None,
    deterministic: options.Deterministic = None,
    trace: options.Trace = None,
    max_input_chars: Annotated[int | None, typer.Option(help="Longest text of a request.")] = None,
    strict_fields: Annotated[
        bool | None, typer.Option("--strict-fields", help="Unknown request fields are errors.")
    ] = None,
    strict_model: Annotated[
        bool | None, typer.Option("--strict-model", help="Take the served name alone as `model`.")
    ] = None,
    voices_dir: options.VoicesDir = None,
    allow_media_domain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Fetch reference clips from https://HOST; *.HOST for all below. May be repeated.",
        ),
    ] = None,
    allow_media_dir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Read reference clips from file: URLs in here."),
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    set_: options.Settings = None,
) -> None:
    """Serve a model over HTTP and WebSocket."""
    begin = time.monotonic()
    flags = options.engine_flags(model, load_format, device, dtype) | {
        "served_name": served_name,
        "engine.slots": slots,
        "engine.threads": threads,
        "engine.deterministic": deterministic,
        "engine.trace": trace,
        "api.host": host,
        "api.port": port,
        "api.max_input_chars": max_input_chars,
        "api.strict_fields": strict_fields,
        "api.strict_model": strict_model,
        "api.voices_dir": voices_dir,
        "api.media_domains": allow_media_domain or None,
        "api.media_dir": allow_media_dir,
        "api.log_level": log_level,
    }
    settings = options.configure(config, set_, flags)

    from voxserve.api.hosts import is_loopback

    if not settings.api.asks_for_key and not is_loopback(settings.api.host):
        typer.echo(
            f"voxserve: {settings.api.host} can be reached from other machines and no api.api_keys "
            "are set: anyone there can use this server",
            err=True,
        )

    from voxserve.api.server import run

    async def beside(service: "Service", url: str) -> None:
        await _greet(service, url, begin)

    raise typer.Exit(run(settings, beside))


async def _greet(service: "Service", url: str, begin: float) -> None:
    from voxserve.cli.progress import EngineStartError, until_ready

    try:
        await until_ready(service.client)
    except EngineStartError as error:
        typer.echo(f"voxserve: {error.message}", err=True)
        return
    took_s = time.monotonic() - begin
    host = service.loaded_host
    assert host is not None, "the engine starts after the model is loaded"
    typer.echo(greeting(host.info, url, took_s, with_key=service.config.api.asks_for_key))


_SPEAK = """-d '{"input": "Hello there"}'"""
_CLONE = """-d @- <<JSON
{"input": "Hello there", "ref_audio": "data:audio/wav;base64,$(base64 -w0 clip.wav)"}
JSON"""


def greeting(info: "ModelInfo", url: str, took_s: float, *, with_key: bool) -> str:
    """What a ready server prints: where it is, its voices, and a request that can be pasted."""
    names = [voice.name for voice in info.voices]
    own = "those of reference clips" if info.cloning else "the model's own"
    shown = ", ".join(names[:VOICES_SHOWN]) or own
    more = f" and {len(names) - VOICES_SHOWN} more" if len(names) > VOICES_SHOWN else ""
    url = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    key = ' -H "authorization: Bearer $VOXSERVE_KEY"' if with_key else ""
    return "\n".join(
        [
            f"{info.name} is ready on {url} after {took_s:.1f} s",
            *([info.notice] if info.notice else []),
            f"voices: {shown}{more}",
            f"curl -N {url}/v1/audio/speech{key} -H 'content-type: application/json' "
            f"-o hello.mp3 {_CLONE if info.cloning and not names else _SPEAK}",
        ]
    )
