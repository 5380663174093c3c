"""What is in the tree, and what the wheel and the sdist made of it hold."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = ("voxserve", "models", "kernels", "tests", "benchmarks")
LONG = 400
REASON = f"longer than {LONG} lines"
FORBIDDEN = {"utils.py", "common.py", "helpers.py", "base.py", "manager.py"}


def _tracked() -> list[Path]:
    """The files of the repository, new ones included; build output and the like left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_symlink() or path.is_file()]


def _code() -> list[Path]:
    return [
        path
        for path in _tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in CODE
    ]


def test_no_file_is_long_without_a_reason_in_it() -> None:
    long = {}
    for path in _code():
        text = path.read_text()
        lines = text.count("\n")
        if lines > LONG and REASON not in " ".join(text.lower().split()):
            long[str(path.relative_to(ROOT))] = lines
    assert not long, (
        f"files of more than {LONG} lines that do not say why they are {REASON!r}: {long}"
    )


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert not [str(path) for path in _code() if path.name in FORBIDDEN]


def test_every_code_folder_is_a_package() -> None:
    """A folder without __init__.py would be left out of the wheel without a word."""
    folders = {path.parent for path in _code() if path.relative_to(ROOT).parts[0] in CODE[:3]}
    assert not [str(folder) for folder in folders if not (folder / "__init__.py").is_file()]


def _links() -> list[Path]:
    return [path for path in _tracked() if path.is_symlink()]


def test_links_are_relative_and_stay_inside() -> None:
    links = _links()
    assert {ROOT / "voxserve" / "models", ROOT / "voxserve" / "kernels"} <= set(links)
    for link in links:
        assert not link.readlink().is_absolute()
        assert link.resolve().is_relative_to(ROOT)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that is made from that sdist."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for path in _tracked():
        copy = tree / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy, follow_symlinks=False)
    run = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        return {info.filename: info for info in archive.infolist()}


def _inside_the_package() -> set[Path]:
    """Every tracked file under voxserve/, also through its links, relative to the root."""
    files = [path.relative_to(ROOT) for path in _tracked() if not path.is_symlink()]
    names = {file for file in files if file.parts[0] == "voxserve"}
    for link in _links():
        target = link.resolve().relative_to(ROOT)
        names |= {
            link.relative_to(ROOT) / file.relative_to(target)
            for file in files
            if file.is_relative_to(target)
        }
    return names


def _package_files() -> set[str]:
    """Files of the package as the wheel must name them: code, and the data that goes with it."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    patterns = [
        f"{package.replace('.', '/')}/{pattern}"
        for package, patterns in tools["setuptools"]["package-data"].items()
        for pattern in patterns
    ]
    return {
        file.as_posix()
        for file in _inside_the_package()
        if file.suffix == ".py" or any(file.match(pattern) for pattern in patterns)
    }


def test_every_file_beside_the_code_is_package_data() -> None:
    """What is neither code nor named in `package-data` would be missing after an install."""
    lost = {file.as_posix() for file in _inside_the_package()} - _package_files()
    assert not lost


def test_wheel_holds_every_file_and_nothing_else(wheel: dict[str, zipfile.ZipInfo]) -> None:
    inside = {name for name in wheel if ".dist-info/" not in name}
    missing, extra = _package_files() - inside, inside - _package_files()
    assert not missing
    assert not extra


def test_wheel_holds_real_files_behind_the_links(wheel: dict[str, zipfile.ZipInfo]) -> None:
    for name, source in [
        ("voxserve/models/__init__.py", ROOT / "models" / "__init__.py"),
        ("voxserve/kernels/__init__.py", ROOT / "kernels" / "__init__.py"),
        ("voxserve/models/tiny/__init__.py", ROOT / "models" / "tiny" / "__init__.py"),
    ]:
        assert wheel[name].file_size == source.stat().st_size
        assert (wheel[name].external_attr >> 16) & 0o170000 == 0o100000


def test_sdist_holds_real_files_behind_the_links(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        members = {member.name.split("/", 1)[-1]: member for member in archive.getmembers()}
    for name in _package_files():
        assert members[name].isfile(), name


def test_wheel_declares_entry_points_and_licence(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        names = {
            name.split("/", 1)[-1]: name for name in archive.namelist() if ".dist-info/" in name
        }
        entry_points = archive.read(names["entry_points.txt"]).decode()
        metadata = archive.read(names["METADATA"]).decode()
    assert "licenses/LICENSE" in names
    assert "License-Expression: Apache-2.0" in metadata
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"voxserve = {project['scripts']['voxserve']}" in entry_points
    for name, target in project["entry-points"]["voxserve.models"].items():
        assert f"{name} = {target}" in entry_points


def test_wheel_runs_without_the_tree(built: Path, tmp_path: Path) -> None:
    """The unpacked wheel starts on its own: no file of the tree is needed."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        archive.extractall(tmp_path)
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import voxserve;"
        f"assert voxserve.__file__.startswith({str(tmp_path)!r}), voxserve.__file__;"
        "import voxserve.models, voxserve.kernels; from voxserve.__main__ import main;"
        "sys.argv = ['voxserve', 'version']; main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("voxserve ")
