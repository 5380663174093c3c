"""Every setting of the server: configs/*.yaml, command-line flags and VOXSERVE_* variables.

This is the only module that reads the environment and the only one with defaults.
"""

import difflib
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from voxserve.scheduler.policy import Policy

Origin = Annotated[str, Field(pattern=r"^https?://[^/*?#\s]+$")]
"""Of a web page: scheme, host and port. No wildcard."""

HostName = Annotated[str, Field(pattern=r"^(\*|[^/*?#@\s:\[\]]+)$")]
"""Without a port; `*` alone is any."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _data_folder() -> Path:
    """Where the user's programs keep their data."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "voxserve"


class PolicyConfig(_Strict):
    """Scheduling policy; `Policy` says what each number means."""

    urgent_slack_s: float = Field(0.1, ge=0, le=10)
    urgent_rows: int = Field(8, ge=1, le=64)
    background_batch: int = Field(8, ge=1, le=256)
    background_rows: int = Field(16, ge=1, le=256)
    prefill_rows: int = Field(8, ge=1, le=64)
    prefill_defer_s: float = Field(0.1, ge=0, le=10)
    admission: Literal["deadline", "prefill-first"] = "deadline"
    refuse: bool = True
    max_waiting: int = Field(1024, ge=0, le=100_000)
    lm_in_flight: int = Field(2, ge=1, le=4)
    ramp: int | Literal["load"] = "load"
    urgent_lane: bool = True
    background_lane: bool = True
    overlap: bool = True

    def policy(self) -> Policy:
        return Policy(**self.model_dump())


class EngineConfig(_Strict):
    """The engine process.

    slots: requests running at once. dtype: of the weights; `auto` is bfloat16 on a GPU, float32 on
    a CPU. threads: CPU threads a lane uses inside one operation; `auto` goes by the cores. context:
    LM positions a request may use. pages: KV pages in each pool, `auto` sizes them so that every
    slot can be full. codec_sms: SMs of a GPU set apart for background batches of the codec, rounded
    by the driver; 0 shares all of them. lm_kernels, codec_kernels: which implementation of a
    model's stages runs on a GPU, where it has more than one; `auto` is the fastest in bfloat16,
    else the plainest.
    profile: file of `voxserve profile`, whose run times the scheduler's estimates start from; a
    relative path in a YAML file counts from that file's folder.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "float64", "bfloat16", "float16"] = "auto"
    slots: int = Field(16, ge=1, le=1024)
    clips: int = Field(64, ge=1, le=100_000)
    context: int = Field(2048, ge=64, le=32_768)
    pages: int | Literal["auto"] = "auto"
    threads: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = "auto"
    codec_sms: int = Field(32, ge=0, le=1024)
    lm_kernels: Literal["auto", "reference", "fused"] = "auto"
    codec_kernels: Literal["auto", "eager", "fused"] = "auto"
    deterministic: bool = False
    profile: Path | None = None
    trace: Path | None = None
    hang_s: float = Field(5.0, gt=0, le=600)
    restarts: int = Field(5, ge=0, le=1000)
    restart_window_s: float = Field(600, gt=0)


class ApiConfig(_Strict):
    """The API process and its limits.

    api_key_file: keys beside `api_keys`, one a line, watched. cors_origins: pages of other hosts
    that may use the API from a browser. allowed_hosts: names in the `Host` header that are
    answered, besides addresses, localhost and the hosts of `cors_origins`; without any, all are,
    unless the server listens on a loopback address and asks for no key. playground: whether
    `/playground` is there. otlp_endpoint: where OpenTelemetry spans go, such as
    http://localhost:4318/v1/traces. max_sessions: WebSockets that each key, or all clients where
    none is asked for, may have open.

    voices_dir: where uploaded voices are kept. media_domains: hosts that `ref_audio` may be fetched
    from over https, exact names or `*.example.org`; media_dir: the folder that its `file:` URLs may
    name. Without them a reference clip comes in the request itself.
    """

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65_535)
    max_input_chars: int = Field(16_384, ge=1, le=1_000_000)
    max_body_bytes: int = Field(16 * 2**20, ge=1024)
    body_timeout_s: float = Field(30, gt=0)
    header_timeout_s: float = Field(10, gt=0)
    queue_timeout_s: float = Field(4.5, gt=0)
    generation_timeout_s: float = Field(600, gt=0)
    ttfa_target_s: float = Field(0.2, gt=0, le=60)
    window_s: float = Field(30, gt=0)
    slow_reader_s: float = Field(20, gt=0)
    encoder_threads: int = Field(4, ge=1, le=64)
    ws_config_timeout_s: float = Field(10, gt=0)
    max_sessions: int = Field(4096, ge=1)
    drain_s: float = Field(30, ge=0)
    api_keys: tuple[str, ...] = ()
    api_key_file: Path | None = None
    cors_origins: tuple[Origin, ...] = ()
    allowed_hosts: tuple[HostName, ...] = ()
    playground: bool = True
    otlp_endpoint: str | None = None
    strict_fields: bool = False
    strict_model: bool = False
    voice_alias: dict[str, str] = Field(default_factory=dict)
    voices_dir: Path = Field(default_factory=lambda: _data_folder() / "voices")
    media_domains: tuple[str, ...] = ()
    media_dir: Path | None = None
    stream_true_means_sse: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def asks_for_key(self) -> bool:
        return bool(self.api_keys) or self.api_key_file is not None


class Config(BaseSettings):
    """The whole configuration. Unknown keys are errors."""

    model_config = SettingsConfigDict(
        env_prefix="VOXSERVE_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    model: str = "mini"
    served_name: str | None = None
    load_format: Literal["auto", "dummy"] = "auto"
    engine: EngineConfig = Field(default_factory=EngineConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    api: ApiConfig = Field(default_factory=ApiConfig)


def load_config(file: Path | None = None, overrides: dict[str, Any] | None = None) -> Config:
    """Merge, weakest first: defaults, the YAML file, VOXSERVE_* variables, `overrides`.

    overrides: nested like the YAML file, without the keys that were not given.
    Raises ValueError, one line naming each wrong key, its value and what is allowed.
    """
    from_file = _read(file) if file else {}
    try:
        from_environment = Config().model_dump(exclude_unset=True)
        return Config(**_merge(_merge(from_file, from_environment), overrides or {}))
    except ValidationError as error:
        raise ValueError("; ".join(_explain(error))) from None
    except SettingsError as error:
        raise ValueError(f"VOXSERVE_* variables: {error}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {file}: {error}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict | None):
        raise ValueError(f"{file} holds a {type(content).__name__}, expected keys and values")
    engine = (content or {}).get("engine")
    if isinstance(engine, dict) and isinstance(engine.get("profile"), str):
        # Beside the file that names it, wherever the server is started.
        engine["profile"] = str(file.parent / engine["profile"])
    return content or {}


def _explain(error: ValidationError) -> list[str]:
    """One sentence a key: its dotted name, its value, and everything that is wrong with it."""
    sentences: dict[str, str] = {}
    for item in error.errors():
        # A section and a key; what follows names a member of a union or an index.
        key = ".".join(str(part) for part in item["loc"][:2])
        wrong = item["msg"][0].lower() + item["msg"][1:]
        if item["type"] == "extra_forbidden":
            sentences[key] = f"{key} is not a setting{_nearest(item['loc'])}"
        elif key in sentences:
            sentences[key] += f", or {wrong}"
        else:
            sentences[key] = f"{key} is {item['input']!r}: {wrong}"
    return list(sentences.values())


def _nearest(loc: tuple[int | str, ...]) -> str:
    sections: dict[str, type[BaseModel]] = {
        "engine": EngineConfig,
        "policy": PolicyConfig,
        "api": ApiConfig,
    }
    section = sections.get(str(loc[0]), Config) if len(loc) > 1 else Config
    near = difflib.get_close_matches(str(loc[-1]), section.model_fields, n=1)
    return f", did you mean {'.'.join([*map(str, loc[:-1]), near[0]])}?" if near else ""


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            merged[key] = _merge(below, value)
        else:
            merged[key] = value
    return merged
