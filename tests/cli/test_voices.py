from pathlib import Path

from tests.audio.recordings import noise
from tests.cli.conftest import Run
from voxserve.api.voice_store import VoiceStore


def test_one_line_a_voice_for_other_programs(voxserve: Run) -> None:
    run = voxserve("voices", "tiny")
    assert run.returncode == 0, run.stderr
    rows = [line.split("\t") for line in run.stdout.splitlines()]
    assert {len(row) for row in rows} == {3}
    assert "ryan" in [name for name, *_ in rows]


def test_uploaded_voices_are_listed_and_speak(voxserve: Run, tmp_path: Path) -> None:
    store = VoiceStore(tmp_path / "voices")
    store.add("Narrator", noise(2.0, seed=1), {"description": "a\tcalm\nvoice"})
    listed = voxserve("voices", "tiny", "--voices-dir", "voices")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.splitlines()[-1] == "Narrator\t\ta calm voice"
    elsewhere = voxserve("voices", "tiny", "--voices-dir", "none")
    assert "Narrator" not in elsewhere.stdout

    def say(*options: str) -> bytes:
        same = ("--model", "tiny", "--seed", "7", "--deterministic", "-o", "out.pcm")
        run = voxserve("say", "Hello there", *same, *options)
        assert run.returncode == 0, run.stderr
        return (tmp_path / "out.pcm").read_bytes()

    uploaded = say("--voices-dir", "voices", "--voice", "narrator")
    assert uploaded and uploaded != say("--voices-dir", "voices")
    unknown = voxserve("say", "Hello", "--model", "tiny", "--voice", "narrator", "-o", "no.wav")
    assert unknown.returncode == 2 and "narrator" in unknown.stderr
