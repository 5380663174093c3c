"""The bundled lists, lists of the user's own, and how rows are drawn."""

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from voxserve.bench.workloads import load, parse
from voxserve.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("name", "rows", "words", "sha256"),
    [
        ("libritts", 97, (1, 57), "4050b942ddb58a62"),
        ("librispeech-pc", 1483, (3, 38), "1dcd867a340a94ac"),
    ],
)
def test_bundled_list(name: str, rows: int, words: tuple[int, int], sha256: str) -> None:
    workload = load(name)
    counts = [len(row.text.split()) for row in workload.rows]
    assert len(workload.rows) == rows
    assert (min(counts), max(counts)) == words
    assert workload.sha256.startswith(sha256)


def test_sample_is_drawn_with_replacement() -> None:
    workload = load("libritts")
    drawn = [row.id for row in islice(workload.draw(np.random.default_rng(1)), 97)]
    assert len(set(drawn)) < 80
    means = [
        np.mean([len(row.text.split()) for row in islice(workload.draw(rng), 4000)])
        for rng in map(np.random.default_rng, range(3))
    ]
    assert np.allclose(means, 19.0, atol=0.9)


def test_list_is_drawn_without_repeats_until_it_is_used_up() -> None:
    workload = load("librispeech-pc")
    drawn = [row.id for row in islice(workload.draw(np.random.default_rng(2)), 2 * 1483)]
    assert len(set(drawn[:1483])) == len(set(drawn[1483:])) == 1483
    assert drawn[:1483] != drawn[1483:]


def test_seed_decides_the_order() -> None:
    workload = load("librispeech-pc")

    def first(seed: int) -> list[str]:
        return [row.id for row in islice(workload.draw(np.random.default_rng(seed)), 20)]

    assert first(5) == first(5)
    assert first(5) != first(6)


def test_own_list(tmp_path: Path) -> None:
    file = tmp_path / "mine.tsv"
    file.write_text("a\tHello there.\n\nb\tA tab\tinside stays.\n", encoding="utf-8")
    workload = load(str(file))
    assert workload.name == "mine"
    assert [(row.id, row.text) for row in workload.rows] == [
        ("a", "Hello there."),
        ("b", "A tab\tinside stays."),
    ]


def test_json_lines_hash_like_a_table_of_the_same_rows() -> None:
    rows = [("a", "Hello."), ("b", "Où est-il ?")]
    table = "".join(f"{name}\t{text}\n" for name, text in rows).encode()
    lines = "".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in rows).encode()
    aliases = "".join(json.dumps({"sample_id": n, "target_text": t}) + "\n" for n, t in rows)
    pools = {
        parse("x", table, "x.tsv", False).pool_sha256,
        parse("x", lines, "x.jsonl", False).pool_sha256,
        parse("x", aliases.encode(), "x.jsonl", False).pool_sha256,
    }
    assert len(pools) == 1


def test_pool_hash_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"id": "a", "text": "Hello."}\n')
    workload = load(str(file))
    assert load(str(file), workload.pool_sha256) == workload
    with pytest.raises(InvalidRequestError, match="pool hash"):
        load(str(file), "0" * 64)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("x.tsv", b"no tab here\n", "x.tsv:1 is not id<TAB>text"),
        ("x.tsv", b"a\tfine\nb\t \n", "x.tsv:2"),
        ("x.tsv", b"", "no utterance"),
        ("x.tsv", b"a\tone\na\ttwo\n", "twice"),
        ("x.tsv", b"a\t\xff\n", "not UTF-8"),
        ("x.jsonl", b"[]\n", "x.jsonl:1 is not an object"),
        ("x.jsonl", b'{"id": 1, "text": "x"}\n', "x.jsonl:1"),
        ("x.jsonl", b"{\n", "x.jsonl:1"),
    ],
)
def test_bad_list_is_named(file: str, content: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse("x", content, file, replacement=False)


def test_missing_list_names_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match="libritts, librispeech-pc"):
        load("nowhere.tsv")
