import dataclasses
import re
import shlex
import signal
import subprocess
from pathlib import Path

from voxserve.cli.serve import greeting
from voxserve.plugin import ModelInfo, Voice

START_S = 60


def _info(voices: int = 2, notice: str = "") -> ModelInfo:
    return ModelInfo(
        name="tiny",
        voices=tuple(Voice(f"v{n}") for n in range(voices)),
        default_voice="v0",
        languages=(),
        ranges={},
        notice=notice,
    )


def test_it_prints_a_curl_line_that_works_and_drains_on_sigterm(
    command: list[str], tmp_path: Path
) -> None:
    server = subprocess.Popen(
        [*command, "serve", "tiny", "--port", "0", "--slots", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            ready = server.stdout.readline()
            shown = [server.stdout.readline() for _ in range(3)]
            assert re.match(r"tiny is ready on http://127\.0\.0\.1:\d+ after [\d.]+ s\n", ready)
            assert "voices: ryan" in shown[1]
            request = subprocess.run(
                shlex.split(shown[2]), capture_output=True, timeout=START_S, check=True
            )
            assert request.returncode == 0
        finally:
            server.send_signal(signal.SIGTERM)
            progress = server.stderr.read()
    assert server.returncode == 0
    assert "warming up: 0/" in progress
    assert "can be reached from other machines" not in progress
    assert (tmp_path / "hello.mp3").read_bytes()[:2] == b"\xff\xf3"


def test_a_model_that_cannot_be_found_ends_the_program(command: list[str]) -> None:
    run = subprocess.run(
        [*command, "serve", "tinny", "--port", "0"], capture_output=True, text=True, timeout=START_S
    )
    assert run.returncode == 2
    assert "did you mean tiny?" in run.stderr
    assert "Traceback" not in run.stderr


def test_an_open_address_without_a_key_is_warned_about(command: list[str]) -> None:
    """The warning comes before anything is started; the missing model then ends the program."""
    arguments = [*command, "serve", "tinny", "--port", "0", "--host", "0.0.0.0"]
    bare = subprocess.run(arguments, capture_output=True, text=True, timeout=START_S)
    keyed = subprocess.run(
        [*arguments, "--set", "api.api_keys=[secret]"],
        capture_output=True,
        text=True,
        timeout=START_S,
    )
    assert "0.0.0.0 can be reached from other machines" in bare.stderr
    assert "can be reached" not in keyed.stderr
    assert "secret" not in keyed.stderr + keyed.stdout


def test_the_curl_line_names_an_address_that_can_be_called() -> None:
    assert "http://127.0.0.1:80/v1" in greeting(_info(), "http://0.0.0.0:80", 1, with_key=False)
    assert "http://[::1]:80/v1" in greeting(_info(), "http://[::]:80", 1, with_key=False)


def test_the_curl_line_carries_a_key_where_one_is_needed() -> None:
    assert "authorization" not in greeting(_info(), "http://x", 1, with_key=False)
    assert '-H "authorization: Bearer $VOXSERVE_KEY"' in greeting(
        _info(), "http://x", 1, with_key=True
    )


def test_many_voices_are_cut_short() -> None:
    shown = greeting(_info(voices=10), "http://x", 1, with_key=False)
    assert "voices: v0, v1, v2, v3, v4, v5, v6, v7 and 2 more" in shown


def test_the_notice_of_a_model_is_shown() -> None:
    assert "\nAI voice.\n" in greeting(_info(notice="AI voice."), "http://x", 1, with_key=False)


def test_a_model_without_voices_is_asked_with_a_clip() -> None:
    info = dataclasses.replace(_info(voices=0), cloning=True)
    shown = greeting(info, "http://x", 1, with_key=False)
    assert "voices: those of reference clips" in shown and "$(base64 -w0 clip.wav)" in shown
    assert "ref_audio" not in greeting(_info(), "http://x", 1, with_key=False)
