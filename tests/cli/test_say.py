import subprocess
import wave
from pathlib import Path

from tests.cli.conftest import Run

SAME = ("--seed", "7", "--deterministic")


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


def test_a_text_file_is_read_and_the_ending_names_the_format(voxserve: Run, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Grüße, 世界")
    run = voxserve("say", "-f", "text.txt", "-o", "out.pcm", "--voice", "RYAN")
    assert run.returncode == 0, run.stderr
    data = (tmp_path / "out.pcm").read_bytes()
    assert data[:4] != b"RIFF"
    assert len(data) % 2 == 0
    assert len(data) > 0


def test_a_speech_that_fails_leaves_no_file(voxserve: Run, tmp_path: Path) -> None:
    run = voxserve("say", "Hello", "-o", "out.wav", "--set", "engine.context=64", "-f", "x")
    assert run.returncode == 2
    assert not (tmp_path / "out.wav").exists()
