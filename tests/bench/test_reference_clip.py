"""The committed reference clip is the one that its README names, and requests carry it."""

import base64
import hashlib
import json
from pathlib import Path

import pytest
import soundfile  # type: ignore[import-untyped]
import typer
from typer.testing import CliRunner

from voxserve.bench.stub import even, stubs
from voxserve.bench.targets import Clip, Target
from voxserve.cli.app import app
from voxserve.cli.bench_options import with_clip
from voxserve.errors import InvalidRequestError

CLIP = Path(__file__).parents[2] / "benchmarks" / "reference_clip"


def test_the_clip_is_the_one_that_results_name() -> None:
    content = (CLIP / "clip.wav").read_bytes()
    assert hashlib.sha256(content).hexdigest() in (CLIP / "README.md").read_text(encoding="utf-8")
    found = soundfile.info(CLIP / "clip.wav")
    assert (found.frames, found.samplerate, found.channels) == (110_400, 16_000, 1)
    assert found.subtype == "PCM_16"
    assert len((CLIP / "transcript.txt").read_text(encoding="utf-8").split()) == 23


def test_a_clip_is_read_with_its_words_from_a_file() -> None:
    aim = with_clip(Target("voxserve", ""), CLIP / "clip.wav", str(CLIP / "transcript.txt"))
    assert aim.clip is not None
    fields = aim.clip.fields
    head, _, content = str(fields["ref_audio"]).partition(",")
    assert head in ("data:audio/wav;base64", "data:audio/x-wav;base64")
    assert base64.b64decode(content) == (CLIP / "clip.wav").read_bytes()
    assert str(fields["ref_text"]).startswith("The morning train")
    assert "ref_audio" not in aim.body("Hello.", 1)


def test_a_clip_needs_no_words_but_words_need_a_clip() -> None:
    assert "ref_text" not in Clip.read(CLIP / "clip.wav", None).fields
    assert with_clip(Target("voxserve", ""), None, None).clip is None
    with pytest.raises(typer.Exit):
        with_clip(Target("voxserve", ""), None, "Hello.")
    with pytest.raises(InvalidRequestError, match=r"nothing\.wav: No such file"):
        Clip.read(CLIP / "nothing.wav", None)


def test_the_result_names_the_clip_and_does_not_hold_it(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    with stubs(even(first_s=0.01, gap_s=0.01, chunk_s=0.05, chunks=2), 1) as url:
        arguments = ["bench", "serve", url, "--rates", "5", "--window", "1", "--burst", "0"]
        clip = ["--ref-audio", str(CLIP / "clip.wav"), "--ref-text", "Some words."]
        ran = CliRunner().invoke(app, [*arguments, *clip, "--json", str(made)])
    assert ran.exit_code == 0, ran.output
    content = made.read_text(encoding="utf-8")
    sha256 = hashlib.sha256((CLIP / "clip.wav").read_bytes()).hexdigest()
    assert json.loads(content)["target"]["clip"] == {"sha256": sha256, "text": "Some words."}
    assert len(content) < 20_000
