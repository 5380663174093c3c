from pathlib import Path

import pytest

from voxserve.config import Config, load_config

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VOXSERVE_MODEL", "VOXSERVE_ENGINE__SLOTS", "VOXSERVE_API__PORT", "VOXSERVE_API"):
        monkeypatch.delenv(name, raising=False)


def _file(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_each_source_overrides_the_weaker_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _file(
        tmp_path, "model: from-file\nengine: {slots: 2, clips: 3, threads: 4}\napi: {port: 1}"
    )
    monkeypatch.setenv("VOXSERVE_ENGINE__SLOTS", "5")
    monkeypatch.setenv("VOXSERVE_ENGINE__CLIPS", "6")
    config = load_config(file, {"engine": {"slots": 7}})

    assert config.engine.slots == 7
    assert config.engine.clips == 6
    assert config.engine.threads == 4
    assert config.engine.context == Config().engine.context
    assert config.api.port == 1
    assert config.model == "from-file"


def test_a_profile_lies_beside_the_file_that_names_it(tmp_path: Path) -> None:
    file = _file(tmp_path, "engine: {profile: h200.json}")
    assert load_config(file).engine.profile == tmp_path / "h200.json"
    given = load_config(file, {"engine": {"profile": "mine.json"}})
    assert given.engine.profile == Path("mine.json")
    absolute = _file(tmp_path, "engine: {profile: /profiles/h200.json}")
    assert load_config(absolute).engine.profile == Path("/profiles/h200.json")


def test_an_override_that_equals_the_default_wins(tmp_path: Path) -> None:
    file = _file(tmp_path, "api: {port: 9}")
    default = Config().api.port
    assert load_config(file, {"api": {"port": default}}).api.port == default


def test_an_empty_file_means_defaults(tmp_path: Path) -> None:
    assert load_config(_file(tmp_path, "")) == Config()


def test_a_map_is_merged_key_by_key(tmp_path: Path) -> None:
    file = _file(tmp_path, "api: {voice_alias: {alloy: anna}}")
    config = load_config(file, {"api": {"voice_alias": {"ash": "ben"}}})
    assert config.api.voice_alias == {"alloy": "anna", "ash": "ben"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"engine": {"slots": 0}},
            "engine.slots is 0: input should be greater than or equal to 1",
        ),
        (
            {"engine": {"threads": 0}},
            "engine.threads is 0: input should be greater than or equal to 1, or input should be '",
        ),
        ({"engine": {"slotz": 1}}, "engine.slotz is not a setting, did you mean engine.slots?"),
        ({"modell": "x"}, "modell is not a setting, did you mean model?"),
        ({"zzz": 1}, "zzz is not a setting"),
        ({"api": {"port": "abc"}}, "api.port is 'abc': input should be a valid integer"),
        ({"policy": {"ramp": "x"}}, "policy.ramp is 'x': input should be a valid integer"),
        ({"engine": {"slots": 0}, "api": {"prot": 1}}, "; api.prot is not a setting"),
    ],
)
def test_a_wrong_key_or_value_is_named(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        load_config(None, overrides)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("VOXSERVE_API__PORT", "70000", "api.port is '70000'"),
        ("VOXSERVE_API", "{bad", "VOXSERVE_"),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        load_config()


@pytest.mark.parametrize(
    ("text", "message"),
    [("- a\n- b", "holds a list"), ("engine: [", "is not YAML"), ("just words", "holds a str")],
)
def test_a_file_that_is_no_map_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        load_config(_file(tmp_path, text))
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*nowhere\.yaml"):
        load_config(tmp_path / "nowhere.yaml")


def test_the_policy_carries_every_field() -> None:
    config = load_config(None, {"policy": {"background_batch": 5, "ramp": 0, "overlap": False}})
    policy = config.policy.policy()
    assert (policy.background_batch, policy.ramp, policy.overlap) == (5, 0, False)


def test_the_config_survives_json() -> None:
    """It travels to the engine process on its command line."""
    config = load_config(None, {"engine": {"trace": "out.json"}, "api": {"api_keys": ["k"]}})
    assert Config.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("file", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda f: f.stem)
def test_every_committed_config_loads(file: Path) -> None:
    load_config(file)
