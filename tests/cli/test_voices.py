from tests.cli.conftest import Run


def test_one_line_a_voice_for_other_programs(voxserve: Run) -> None:
    run = voxserve("voices", "tiny")
    assert run.returncode == 0, run.stderr
    rows = [line.split("\t") for line in run.stdout.splitlines()]
    assert {len(row) for row in rows} == {3}
    assert "ryan" in [name for name, *_ in rows]
