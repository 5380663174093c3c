import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from voxserve import __version__
from voxserve.__main__ import main

HEAVY = {"fastapi", "numpy", "pydantic", "rich", "torch", "uvicorn", "yaml"}


def test_help_names_every_command(voxserve: Run) -> None:
    run = voxserve("--help")
    assert run.returncode == 0
    for name in ("serve", "say", "voices", "check", "version"):
        assert f"\n  {name} " in run.stdout


def test_help_imports_nothing_heavy() -> None:
    """The first thing that people type answers at once."""
    script = (
        "import sys; sys.argv = ['voxserve', '--help']\n"
        "from voxserve.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(run.stderr.split())
    assert "voxserve.cli.serve" in loaded
    assert not HEAVY & loaded


def test_version_names_all_three(voxserve: Run) -> None:
    run = voxserve("version")
    assert run.stdout.startswith(f"voxserve {__version__}, Python {sys.version_info.major}.")
    assert ", torch " in run.stdout


def test_the_installed_script_is_main() -> None:
    (script,) = entry_points(group="console_scripts", name="voxserve")
    assert script.load() is main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--hots", "x"], "No such option: --hots (Possible options: --host"),
        (["say", "x", "--vice", "x"], "No such option: --vice (Possible options: "),
        (["voics"], "No such command 'voics'. Did you mean 'voices'?"),
        (["serve", "--port", "abc"], "Invalid value for '--port'"),
        (["serve", "--port", "70000"], "voxserve: api.port is 70000: input should be less than"),
        (["serve", "--slots", "0"], "voxserve: engine.slots is 0: input should be greater than"),
        (["serve", "--set", "policy.ramp"], "voxserve: --set policy.ramp is not KEY=VALUE"),
        (["serve", "--set", "policy.rmap=1"], "did you mean policy.ramp?"),
        (["serve", "--set", "policy.ramp=["], "the value is not YAML"),
        (["serve", "--set", "a=1", "--set", "a.b=1"], "a is already set to 1"),
        (["serve", "--config", "nowhere.yaml"], "voxserve: cannot read nowhere.yaml"),
        (["voices", "tinny"], "did you mean tiny?"),
        (["check", "tinny"], "no model, folder or hub id 'tinny'"),
        (["say", "x", "--model", "tinny"], "did you mean tiny?"),
        (["say"], "voxserve: name either a text or a file"),
        (["say", "x", "-f", "y"], "voxserve: name either a text or a file"),
        (["say", "-f", "nowhere.txt"], "voxserve: cannot read nowhere.txt"),
        (["say", "..."], "voxserve: input holds no letter"),
        (["say", "x", "--model", "tiny", "--voice", "ryam"], "nearest: ryan"),
        (
            ["say", "x", "-o", "x.aiff"],
            "voxserve: response_format is aiff, this server has: mp3, opus, aac, flac, wav, pcm",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_gets_one_line_and_code_2(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["voxserve", *arguments])
    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 2
    shown = capsys.readouterr()
    # Two lines of usage may stand before it.
    assert message in shown.err.strip().splitlines()[-1]
    assert "Traceback" not in shown.err
    assert shown.out == ""
    assert not list(tmp_path.iterdir())
