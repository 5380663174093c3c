"""Rows do not disturb each other, every parameter acts, and every stage can be captured."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.parity.higgs_audio_v3.checkpoint import speech_like
from tests.parity.higgs_audio_v3.rig import (
    BOOKS,
    HOP,
    SOUNDS,
    Rig,
    allocate,
    host,
    model,
    random_codes,
    rig,
)
from voxserve.models.higgs_audio_v3.limits import POOL
from voxserve.models.higgs_audio_v3.stages import HiggsModel
from voxserve.plugin import EndReason
from voxserve.requests import ReferenceClip, SpeechRequest

HELLO = SpeechRequest(text="Hello there! The news.", max_frames=6, seed=3)
GREEDY = replace(HELLO, temperature=0.0)
CLIP = ReferenceClip("one", speech_like(1.3), "The quick fox.")


def speak(*requests: SpeechRequest) -> list[Tensor]:
    made = rig(slots=max(4, len(requests)))
    return [torch.stack(one.rows) for one in made.speak([made.host.prompt(r) for r in requests])]


def test_rows_equal_each_alone() -> None:
    """Different texts, clips, lengths and sampling in one batch."""
    requests = [
        replace(HELLO, max_frames=3),
        replace(HELLO, seed=4, text="a", max_frames=2),
        replace(GREEDY, clip=CLIP, max_frames=4),
        replace(HELLO, clip=replace(CLIP, key="two", audio=speech_like(2.2)), top_k=3),
    ]
    for alone, together in zip((speak(r)[0] for r in requests), speak(*requests), strict=True):
        assert alone.tolist() == together.tolist()


def test_a_reused_slot_is_clean() -> None:
    made = rig()
    prompts = [made.host.prompt(r) for r in (HELLO, replace(HELLO, text="Other.", seed=9))]
    first, _, again = (made.speak([prompts[n]])[0].rows for n in (0, 1, 0))
    assert torch.stack(first).tolist() == torch.stack(again).tolist()


def test_padding_writes_to_spare_pages_only() -> None:
    made = rig()
    before = made.state["lm.kv.1"].clone()
    made.speak([made.host.prompt(HELLO)])
    changed = (made.state["lm.kv.1"] != before).flatten(1).any(dim=1).nonzero().flatten().tolist()
    assert set(changed) <= {*made.pages_of(made.slots - 1)[:1], len(before) - 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.2},
        {"top_k": 2},
        {"top_p": 0.01},
        {"seed": 4},
        {"text": "Hello there! The news?"},
        {"text": "Hello there!<|emotion:happy|> The news."},
        {"clip": CLIP},
    ],
    ids=str,
)
def test_every_parameter_acts(changes: dict[str, object]) -> None:
    plain, changed = speak(HELLO, replace(HELLO, **changes))  # type: ignore[arg-type]
    assert plain.tolist() != changed.tolist()


def test_the_words_of_a_clip_act() -> None:
    with_words, without = speak(
        replace(GREEDY, clip=CLIP), replace(GREEDY, clip=CLIP, speaker_only=True)
    )
    assert with_words.tolist() != without.tolist()


def test_top_k_of_one_is_greedy() -> None:
    narrow, greedy = speak(replace(HELLO, top_k=1), GREEDY)
    assert narrow.tolist() == greedy.tolist()


def test_the_codebooks_draw_apart() -> None:
    """With all codes alike, each codebook's choice is its own noise's."""
    made = rig()
    flat = copy.copy(made.model.lm)
    made.model = HiggsModel(made.model.config, flat, made.model.sound)
    flat.logits = lambda hidden: torch.zeros(len(hidden), BOOKS, SOUNDS + 2)  # type: ignore[method-assign]
    hot = replace(HELLO, temperature=2.0, top_k=-1, top_p=1.0)
    (one,) = made.speak([made.host.prompt(hot)])
    assert len(set(one.rows[9].tolist())) >= BOOKS - 2  # a pair may meet by chance


def ending() -> Rig:
    """A rig whose model would say the end code at once, in every codebook."""
    made = rig()
    eager = copy.copy(made.model.lm)
    made.model = HiggsModel(made.model.config, eager, made.model.sound)

    def logits(hidden: Tensor) -> Tensor:
        out = torch.zeros(len(hidden), BOOKS, SOUNDS + 2)
        out[..., -1] = 1e4
        out[..., 5] = 1
        return out

    eager.logits = logits  # type: ignore[method-assign]
    return made


def test_the_end_code_counts_once_all_have_begun() -> None:
    made = ending()
    (one,) = made.speak([made.host.prompt(replace(HELLO, max_frames=30))])
    assert (len(one.rows), one.ended) == (15, EndReason.STOP)


def test_forced_length_never_ends_early() -> None:
    made = ending()
    prompt = replace(made.host.prompt(replace(HELLO, max_frames=30)), ignore_eos=True)
    (one,) = made.speak([prompt])
    assert (len(one.rows), one.frames, one.ended) == (37, 30, EndReason.LENGTH)
    assert max(int(row[0]) for row in one.rows) < SOUNDS


def test_decode_of_spare_rows_before_any_prefill_is_harmless() -> None:
    """Warm-up runs decode on the spare slot, whose page table nobody has written."""
    made = rig()
    before = made.state["lm.kv.0"].clone()
    made.decode([])
    changed = (made.state["lm.kv.0"] != before).flatten(1).any(dim=1).nonzero().flatten().tolist()
    assert changed == [len(before) - 1]


def test_chunks_of_a_batch_are_strangers() -> None:
    """A first, a middle and a last chunk of three streams at once."""
    codes = {n: random_codes(40 + n)[n:] for n in range(3)}
    wanted = {0: (0, 5), 1: (10, 5), 2: (37, 3)}
    together = rig().chunk(codes, wanted)
    for name in codes:
        alone = rig().sound(codes[name], [len(codes[name])])
        first, count = wanted[name]
        expected = alone[first * HOP : (first + count) * HOP]
        torch.testing.assert_close(together[name], expected, atol=1e-5, rtol=0)


def test_stages_have_fixed_shapes_and_one_device() -> None:
    """On the meta device, which has no values: reading one back, a shape that depends on one, or
    arithmetic with a tensor left on the CPU raises. So each stage can be captured as a graph."""
    made = model()
    lm, sound = copy.deepcopy(made.lm).to("meta"), copy.deepcopy(made.sound).to("meta")
    on_meta = HiggsModel(made.config, lm, sound)
    spec = host().spec
    state = {n: t.to("meta") for n, t in allocate(spec, 3, 9, 2).items()}
    rows, bucket = 2, 5

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
    window = spec.left_frames + bucket + spec.ahead_frames
    chunk = {"codes": whole(rows, window, BOOKS), "valid": whole(rows, window) > 0}
    clip = torch.empty(rows, 5 * 24_000, device="meta")
    clips = {"clips": whole(rows), "audio": clip, "lengths": whole(rows)}
    assert on_meta.prefill(prompt, state)["codes"].shape == (rows, BOOKS)
    assert on_meta.decode(step, state)["codes"].shape == (rows, BOOKS)
    assert on_meta.codec(chunk, state)["audio"].shape == (rows, bucket * HOP)
    assert on_meta.encode(clips, state) == {}
