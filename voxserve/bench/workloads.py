"""Texts to speak: the lists that come with the package, and lists of the user's own."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from voxserve.errors import InvalidRequestError

SEED_TTS_POOL_SHA256 = "661013d15bb15db122a947513d9e718fefd6c0d9f3dbd32ec1efebf13f6fecb1"
"""Of the 1,088 English sentences of Seed-TTS, as `pool_sha256` counts it."""


@dataclass(frozen=True, slots=True)
class Utterance:
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Workload:
    """A list of utterances.

    sha256: of the file's bytes. pool_sha256: of ids and texts alone, whatever the file's form.
    replacement: whether `draw` takes each row independently, or every row once before any twice.
    """

    name: str
    rows: tuple[Utterance, ...]
    sha256: str
    pool_sha256: str
    replacement: bool

    def draw(self, rng: np.random.Generator) -> Iterator[Utterance]:
        """Utterances without end, in an order that `rng` alone decides."""
        while True:
            if self.replacement:
                order = rng.integers(len(self.rows), size=len(self.rows))
            else:
                order = rng.permutation(len(self.rows))
            for index in order.tolist():
                yield self.rows[index]


@dataclass(frozen=True, slots=True)
class _Bundled:
    file: str
    replacement: bool


BUNDLED = {
    "libritts": _Bundled("libritts_test_clean.tsv", replacement=True),
    "librispeech-pc": _Bundled("librispeech_pc_test_clean.tsv", replacement=False),
}


def load(name: str, pool_sha256: str | None = None) -> Workload:
    """A bundled list by its name, or the user's own by its path (.tsv or .jsonl).

    pool_sha256: what the list's own must be, when given.
    Raises InvalidRequestError naming the line, or both hashes.
    """
    bundled = BUNDLED.get(name)
    if bundled is not None:
        source = resources.files("voxserve.bench") / "workloads" / bundled.file
        workload = parse(name, source.read_bytes(), bundled.file, bundled.replacement)
    else:
        path = Path(name)
        try:
            content = path.read_bytes()
        except OSError as error:
            known = ", ".join(BUNDLED)
            raise InvalidRequestError(
                f"workload {name} is not one of {known}, and not a file: {error.strerror}"
            ) from error
        workload = parse(path.stem, content, path.name, replacement=False)
    if pool_sha256 is not None and workload.pool_sha256 != pool_sha256:
        raise InvalidRequestError(
            f"workload {name} has the pool hash {workload.pool_sha256}, expected {pool_sha256}"
        )
    return workload


def parse(name: str, content: bytes, file: str, replacement: bool) -> Workload:
    """A workload from the bytes of a file called `file`. Raises InvalidRequestError."""
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{file} is not UTF-8: {error.reason}") from error
    read = _json_row if file.endswith(".jsonl") else _tab_row
    rows = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = read(line)
            if row is None or not row.id.strip() or not row.text.strip():
                form = "an object with id and text" if read is _json_row else "id<TAB>text"
                raise InvalidRequestError(f"{file}:{number} is not {form}")
            rows.append(row)
    if not rows:
        raise InvalidRequestError(f"{file} holds no utterance")
    if len({row.id for row in rows}) < len(rows):
        raise InvalidRequestError(f"{file} holds an id twice")
    pool = _pool_sha256(rows)
    return Workload(
        name="seed-tts-en" if pool == SEED_TTS_POOL_SHA256 else name,
        rows=tuple(rows),
        sha256=hashlib.sha256(content).hexdigest(),
        pool_sha256=pool,
        replacement=replacement,
    )


def _tab_row(line: str) -> Utterance | None:
    name, tab, text = line.partition("\t")
    return Utterance(name, text.strip()) if tab else None


def _json_row(line: str) -> Utterance | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    name = value.get("id", value.get("sample_id"))
    text = value.get("text", value.get("target_text"))
    return Utterance(name, text) if isinstance(name, str) and isinstance(text, str) else None


def _pool_sha256(rows: list[Utterance]) -> str:
    """Over one JSON object a row (id, language, text), the form that Seed-TTS lists are pinned by.

    Lists carry no language of their own, so it is always "en" here.
    """
    digest = hashlib.sha256()
    for row in rows:
        value = {"id": row.id, "language": "en", "text": row.text}
        digest.update(json.dumps(value, ensure_ascii=False, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()
