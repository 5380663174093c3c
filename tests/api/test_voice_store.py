import json
import os
import shutil
import string
from pathlib import Path

import pytest

from voxserve.api import voice_store
from voxserve.api.voice_store import VoiceStore, check_name
from voxserve.errors import ConflictError, InvalidRequestError, NotFoundError, VoxserveError

AUDIO = b"RIFF and so on"
BAD_NAMES = [
    *("", ".", "..", "...", "../x", "a/b", "/etc/passwd", "a\\b", "..\\x", "~", "~root", "-rf"),
    *(
        "con\0",
        "a\0.wav",
        "a\n",
        "\na",
        "a b",
        " a",
        "a ",
        "\ta",
        "a\r",
        "ａ",
        "é",
        "名",
        "a\u200b",
    ),
    *("_a", ".a", "a:b", "C:\\x", "a%2fb", "%2e%2e%2fx", "a?b", "a#b", "a*b", "a|b", "<a>", "$(x)"),
    *("`x`", "a;b", "a&b", "a'b", 'a"b', "a,b", "a=b", "a+b", "a@b", "a!b", "{a}", "[a]", "a^b"),
    *(
        "a" * 65,
        "a" * 200,
        "a" * 5000,
        "😀",
        "a\ud800",
        "\u202ea",
        "a\u0301",
        "a..\x00",
        "file:///x",
    ),
    *(f"a{sign}" for sign in "/\\:\0\x01\x1f\x7f\x80\xa0 \t\n\r\x0b\x0c"),
    *(f"{sign}a" for sign in string.punctuation),
    *(f"..{sign}x" for sign in "/\\%∕⁄"),
]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_voice_is_kept_and_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "voices"
    store = VoiceStore(folder)
    store.load()
    assert not folder.exists()
    about = {"ref_text": "Hello.", "description": None, "consent": "signed"}
    voice = store.add("Anna.1", AUDIO, about)
    assert (voice.name, voice.ref_text, voice.consent) == ("Anna.1", "Hello.", "signed")
    again = VoiceStore(folder)
    again.load()
    assert again.all() == store.all() == [voice]
    assert again.get("aNNA.1") == voice and again.get("Anna") is None and again.get(None) is None
    assert again.audio(voice) == AUDIO
    assert {path.suffix for path in folder.iterdir()} == {".json", ".audio"}
    assert not any("nna" in path.name for path in folder.iterdir())
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    again.remove("ANNA.1")
    assert not list(folder.iterdir())
    with pytest.raises(NotFoundError):
        again.remove("Anna.1")


def test_a_name_is_given_once_whatever_its_case_and_whoever_asks(tmp_path: Path) -> None:
    store, beside = VoiceStore(tmp_path), VoiceStore(tmp_path)
    store.add("anna", AUDIO, {})
    for other in (store, beside):
        with pytest.raises(ConflictError) as refused:
            other.add("ANNA", AUDIO, {})
        assert refused.value.code == "voice_exists"
    assert len(tree(tmp_path)) == 2
    with pytest.raises(ConflictError):
        beside.add("ANNA", b"another recording", {})
    (voice,) = store.all()
    assert store.audio(voice) == AUDIO


def test_servers_that_share_a_folder_see_each_others_voices(tmp_path: Path) -> None:
    folder = tmp_path / "voices"
    one, other = VoiceStore(folder), VoiceStore(folder)
    assert not other.all()
    for turn in range(20):  # faster than the clock of the file system
        mine, yours = one.add("anna", AUDIO + bytes([turn]), {}), other.get("Anna")
        assert yours == mine and other.all() == [mine]
        assert other.audio(mine) == AUDIO + bytes([turn])
        other.remove("anna")
        assert one.get("anna") is None and not one.all()
    one.add("ben", AUDIO, {})
    shutil.rmtree(folder)
    assert not one.all() and not other.all()


def test_files_are_read_again_only_when_they_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "half.json").write_text("{")
    store = VoiceStore(tmp_path)
    for _ in range(3):
        store.load()
    assert caplog.text.count("half.json") == 1
    os.utime(tmp_path, (1, 1))
    store.load()
    (tmp_path / "half.json").write_text("[]")
    os.utime(tmp_path, (2, 2))
    store.load()
    assert caplog.text.count("half.json") == 2
    VoiceStore(tmp_path).add("anna", AUDIO, {})
    os.utime(tmp_path, (2, 2))
    store.load()
    assert not store._voices, "the folder did not change, so nobody looks inside"
    os.utime(tmp_path, (3, 3))
    assert len(store.all()) == 1


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names_touch_nothing(name: str, tmp_path: Path) -> None:
    store = VoiceStore(tmp_path / "voices")
    store.add("anna", AUDIO, {})
    before = tree(tmp_path)
    with pytest.raises(InvalidRequestError) as refused:
        store.add(name, AUDIO, {})
    assert refused.value.param == "name"
    with pytest.raises(InvalidRequestError):
        store.remove(name)
    assert tree(tmp_path) == before


def test_there_are_many_bad_names() -> None:
    assert len(set(BAD_NAMES)) >= 100


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "7", "a" * 64, "con", "a.json"])
def test_good_names(name: str) -> None:
    check_name(name)


def test_the_number_of_voices_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice_store, "MAX_VOICES", 2)
    store = VoiceStore(tmp_path)
    for name in ("a", "b"):
        store.add(name, AUDIO, {})
    with pytest.raises(InvalidRequestError) as refused:
        store.add("c", AUDIO, {})
    assert refused.value.code == "too_many_voices" and "2 voices" in refused.value.message
    store.remove("a")
    store.add("c", AUDIO, {})


def test_damaged_and_foreign_files_are_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = VoiceStore(tmp_path).add("good", AUDIO, {})
    (tmp_path / "half.json").write_text('{"name": "half"')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "evil.json").write_text(json.dumps({"name": "../x", "key": "", "created": 0}))
    # A good voice under a file name that is not its own.
    (tmp_path / "other.json").write_text(json.dumps({"name": "b", "key": "", "created": 0}))
    store = VoiceStore(tmp_path)
    store.load()
    assert store.all() == [good]
    assert {"half.json", "list.json", "evil.json"} <= set(caplog.text.split())


def test_a_disk_that_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = VoiceStore(tmp_path / "file")
    with pytest.raises(VoxserveError) as refused:
        store.add("anna", AUDIO, {})
    assert (refused.value.status, refused.value.code) == (500, "voice_not_stored")
    assert str(tmp_path) not in refused.value.message
    assert store.all() == []


def test_a_disk_that_lets_go_of_nothing(tmp_path: Path) -> None:
    store = VoiceStore(tmp_path)
    store.add("anna", AUDIO, {})
    (about,) = tmp_path.glob("*.json")
    content = about.read_bytes()
    about.unlink()
    about.mkdir()
    os.utime(tmp_path, (1, 1))
    store._version = voice_store._version(os.stat(tmp_path))
    with pytest.raises(VoxserveError) as refused:
        store.remove("anna")
    assert (refused.value.status, refused.value.code) == (500, "voice_not_deleted")
    about.rmdir()
    about.write_bytes(content)
    assert store.get("anna") is not None
    store.remove("anna")
    assert not list(tmp_path.iterdir())
