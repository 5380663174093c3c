"""Rows do not disturb each other, and every parameter acts."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.parity.qwen3_tts.checkpoint import speech_like
from tests.parity.qwen3_tts.rig import EOS, Rig, allocate, host, model, rig_for
from voxserve.models.qwen3_tts.limits import POOL
from voxserve.requests import ReferenceClip, SpeechRequest

CUSTOM, BASE = "custom_voice-1b7", "base-1b7"
HELLO = SpeechRequest(text="Hello there! The news.", voice="ryan", max_frames=6, seed=3)
GREEDY = replace(HELLO, temperature=0.0, extra={"subtalker_temperature": 0.0})


def speak(*requests: SpeechRequest, name: str = CUSTOM) -> list[Tensor]:
    rig = rig_for(name, slots=max(4, len(requests)))
    return rig.speak([rig.host.prompt(request) for request in requests])


def merged(request: SpeechRequest, changes: dict[str, Any]) -> SpeechRequest:
    extra = {**request.extra, **changes.pop("extra", {})}
    return replace(request, **changes, extra=extra)


def test_rows_equal_each_alone() -> None:
    """Different voices, lengths, modes and sampling in one batch, also sampled ones."""
    requests = [
        HELLO,
        replace(HELLO, seed=4, text="a", instructions="Slowly, please."),
        replace(GREEDY, voice="eric"),
        replace(HELLO, extra={"non_streaming_mode": False}, top_k=3, temperature=1.7),
    ]
    for alone, together in zip((speak(r)[0] for r in requests), speak(*requests), strict=True):
        assert alone.tolist() == together.tolist()


def test_a_reused_slot_is_clean() -> None:
    rig = rig_for(CUSTOM)
    prompts = [rig.host.prompt(r) for r in (HELLO, replace(HELLO, text="Other words.", seed=9))]
    (first,) = rig.speak(prompts[:1])
    rig.speak(prompts[1:])
    (again,) = rig.speak(prompts[:1])
    assert first.tolist() == again.tolist()


def test_padding_writes_to_spare_pages_only() -> None:
    """Prefill padding behind a short row, and whole padding rows, leave all other pages alone."""
    rig = rig_for(CUSTOM)
    before = rig.state["lm.kv.1"].clone()
    rig.speak([rig.host.prompt(HELLO)])
    changed = (rig.state["lm.kv.1"] != before).flatten(1).any(dim=1).nonzero().flatten().tolist()
    spare = len(before) - 1
    assert set(changed) <= {*rig.pages_of(rig.slots - 1)[:1], spare}


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.2},
        {"top_k": 2},
        {"top_p": 0.01},
        {"seed": 4},
        {"text": "Hello there! The news?"},
        {"voice": "vivian"},
        {"language": "french"},
        {"instructions": "Slowly."},
        {"extra": {"non_streaming_mode": False}},
        {"extra": {"subtalker_temperature": 0.1}},
        {"extra": {"subtalker_top_k": 1}},
        {"extra": {"subtalker_top_p": 0.001}},
    ],
    ids=str,
)
def test_every_parameter_acts(changes: dict[str, Any]) -> None:
    plain, changed = speak(HELLO, merged(HELLO, dict(changes)))
    assert plain.tolist() != changed.tolist()


def test_repetition_penalty_acts() -> None:
    """Greedy with a penalty below 1 says the same code again, above 1 it does not."""
    eager, shy = speak(*(replace(GREEDY, repetition_penalty=p, max_frames=25) for p in (0.5, 2.0)))
    assert len(set(eager[:, 0].tolist())) < len(set(shy[:, 0].tolist())) == 25


def test_max_new_tokens_acts() -> None:
    (codes,) = speak(replace(GREEDY, max_frames=3))
    assert len(codes) == 3


@pytest.mark.parametrize(("field", "value"), [("subtalker_top_k", 1), ("subtalker_top_p", 0.001)])
def test_depth_parameters_leave_the_first_codebook_alone(field: str, value: float) -> None:
    """In the first frame only: later ones follow from all the codes before."""
    plain, changed = speak(HELLO, merged(HELLO, {"extra": {field: value}}))
    assert plain[0, 0] == changed[0, 0]
    assert plain[0, 1:].tolist() != changed[0, 1:].tolist()


def test_top_k_of_one_is_greedy() -> None:
    narrow, greedy = speak(merged(HELLO, {"top_k": 1, "extra": {"subtalker_top_k": 1}}), GREEDY)
    assert narrow.tolist() == greedy.tolist()


def test_speaker_only_acts() -> None:
    clip = ReferenceClip("c", speech_like(1.5), "The quick fox.")
    clone = replace(GREEDY, voice=None, clip=clip)
    continued, vector = speak(clone, replace(clone, speaker_only=True), name=BASE)
    assert continued.tolist() != vector.tolist()


def eager_to_end() -> Rig:
    """A rig whose model would say the end code at once, whatever it hears."""
    rig = rig_for(CUSTOM)
    rig.model = type(rig.model)(rig.model.config, rig.model.language, rig.model.sound)
    rig.model.talker = Ending(rig.model.talker)  # type: ignore[assignment]
    return rig


class Ending:
    """A talker with a code head that prefers the end code."""

    def __init__(self, talker: Any) -> None:
        self._talker = talker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._talker, name)

    def speak(self, hidden: Tensor, choose: Any) -> Tensor:
        def prefer(logits: Tensor, codebook: int) -> Tensor:
            if codebook == 0:
                logits[:, EOS] = 1e4
            codes: Tensor = choose(logits, codebook)
            return codes

        codes: Tensor = self._talker.speak(hidden, prefer)
        return codes


def test_the_end_code_is_forbidden_for_two_steps() -> None:
    rig = eager_to_end()
    assert len(rig.speak([rig.host.prompt(HELLO)])[0]) == 2


def test_forced_length_never_ends_early() -> None:
    rig = eager_to_end()
    prompt = replace(rig.host.prompt(HELLO), ignore_eos=True)
    codes = rig.speak([prompt])[0]
    assert len(codes) == 6
    assert codes.max() < 2048


def test_only_sounds_and_the_end_code_are_said() -> None:
    """Hot sampling over the whole vocabulary never gives a control code."""
    hot = replace(HELLO, temperature=2.0, top_k=-1, max_frames=12)
    spoken = torch.cat(speak(*(replace(hot, seed=seed) for seed in range(8))))
    assert spoken.max() < 2048


def test_decode_of_spare_rows_before_any_prefill_is_harmless() -> None:
    """Warm-up runs decode on the spare slot, whose page table nobody has written."""
    rig = Rig(host(CUSTOM), model(CUSTOM))
    before = rig.state["lm.kv.0"].clone()
    rig.decode([])
    changed = (rig.state["lm.kv.0"] != before).flatten(1).any(dim=1).nonzero().flatten().tolist()
    assert changed == [len(before) - 1]


def test_narrow_and_wide_page_tables_agree() -> None:
    """The engine's table may be shorter than the row state's."""
    short, wide = rig_for(CUSTOM), rig_for(CUSTOM)
    wide.pages = 12
    pages = len(wide.state["lm.kv.0"])
    for layer in range(2):
        name = f"lm.kv.{layer}"
        wide.state[name] = wide.state[name].repeat(3, *([1] * 4))
    assert len(wide.state["lm.kv.0"]) == 3 * pages
    prompt = host(CUSTOM).prompt(GREEDY)
    assert POOL in host(CUSTOM).spec.pools[0].name
    assert short.speak([prompt])[0].tolist() == wide.speak([prompt])[0].tolist()


@pytest.mark.parametrize("name", [CUSTOM, BASE])
def test_stages_have_fixed_shapes_and_one_device(name: str) -> None:
    """On the meta device, which has no values: reading one back, a shape that depends on one, or
    arithmetic with a tensor left on the CPU raises. So each stage can be captured as a graph."""
    made = model(name)
    on_meta = type(made)(
        made.config,
        copy.deepcopy(made.language).to("meta"),
        copy.deepcopy(made.sound).to("meta"),
    )
    spec = host(name).spec
    state = {n: t.to("meta") for n, t in allocate(spec, 3, 9, 2, "float32").items()}
    rows, bucket = 2, 4

    def whole(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int64, device="meta")

    prompt = {
        "slots": whole(rows),
        "lengths": whole(rows),
        "rows": whole(rows, 32, spec.prompt_columns),
        "sampling": torch.empty(rows, len(spec.sampling), device="meta"),
        "seeds": whole(rows),
        "ignore_eos": whole(rows) > 0,
        "clips": whole(rows),
        f"pages_{POOL}": whole(rows, 3),
    }
    step = {"slots": whole(rows), "steps": whole(rows), "inject": whole(rows, 1)}
    chunk = {
        "slots": whole(rows),
        "codes": whole(rows, bucket, spec.codebooks),
        "lengths": whole(rows),
        "fresh": whole(rows) > 0,
    }
    assert on_meta.prefill(prompt, state)["codes"].shape == (rows, spec.codebooks)
    assert on_meta.decode(step, state)["codes"].shape == (rows, spec.codebooks)
    audio = on_meta.codec(chunk, state)["audio"]
    assert audio.shape == (rows, bucket * spec.samples_per_frame)
    if host(name).info.cloning:
        clip = torch.empty(rows, 5 * 24000, device="meta")
        clips = {"clips": whole(rows), "audio": clip, "lengths": whole(rows)}
        assert on_meta.encode(clips, state) == {}
