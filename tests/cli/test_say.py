import json
import os
import subprocess
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.audio.sounds import decode
from tests.cli.conftest import Run
from voxserve.checkpoints import find
from voxserve.cli.say import _opened

TINY = ("--model", "tiny")
SAME = (*TINY, "--seed", "7", "--deterministic")


def test_file_stdout_and_stdin_give_the_same_audio(
    voxserve: Run, command: list[str], tmp_path: Path
) -> None:
    run = voxserve("say", "Hello there", "-o", "out.wav", *SAME)
    assert run.returncode == 0, run.stderr
    assert "warming up: " in run.stderr
    assert "seed 7" in run.stderr
    with wave.open(str(tmp_path / "out.wav")) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        pcm = file.readframes(file.getnframes())
        assert len(pcm) == 2 * file.getnframes() > 0
    assert (tmp_path / "out.wav").stat().st_size == 44 + len(pcm)

    piped = subprocess.run(
        [*command, "say", "-", "-o", "-", "--format", "pcm", *SAME],
        input=b"Hello there\n",
        capture_output=True,
        timeout=60,
    )
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout == pcm


def test_an_engine_that_cannot_start_ends_the_program(voxserve: Run, tmp_path: Path) -> None:
    """A folder with a configuration and no weights is found, but cannot be loaded."""
    folder = tmp_path / "model"
    folder.mkdir()
    _, checkpoint = find("tiny", dummy=False)
    (folder / "config.json").write_text(json.dumps(checkpoint.config))
    run = voxserve("say", "Hello", "-o", "out.wav", "--model", "model")
    assert run.returncode == 2
    lines = run.stderr.splitlines()
    assert lines[-1] == "voxserve: the engine could not be started, the lines above say why"
    assert "model" in lines[-3]
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "out.wav").exists()


def test_a_speech_that_breaks_off_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "out.wav"
    with pytest.raises(KeyboardInterrupt), _opened(file) as sink:
        sink.write(b"some")
        raise KeyboardInterrupt
    assert not file.exists()


def test_a_text_file_is_read_and_a_pipe_written_from_front_to_back(
    voxserve: Run, tmp_path: Path
) -> None:
    """Nobody can go back in a pipe: the header keeps its unknown sizes. It is not removed."""
    (tmp_path / "text.txt").write_text("Grüße, 世界")
    pipe = tmp_path / "pipe.wav"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(pipe.read_bytes)
        run = voxserve("say", "-f", "text.txt", "-o", "pipe.wav", "--voice", "RYAN", *TINY)
        data = reading.result()
    assert run.returncode == 0, run.stderr
    assert data[:4] == b"RIFF"
    assert data[40:44] == b"\xff" * 4
    assert len(data) > 44
    assert pipe.exists()


@pytest.mark.parametrize(("ending", "rate_hz"), [("mp3", 24_000), ("ogg", 48_000)])
def test_the_ending_names_the_format(
    voxserve: Run, tmp_path: Path, ending: str, rate_hz: int
) -> None:
    run = voxserve("say", "Hello there", "-o", f"out.{ending}", "--speed", "1.5", *SAME)
    assert run.returncode == 0, run.stderr
    samples, played_hz = decode((tmp_path / f"out.{ending}").read_bytes())
    assert played_hz == rate_hz
    assert f": {len(samples) / rate_hz:.2f} s of audio" in run.stderr
