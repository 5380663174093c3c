"""The language model of mini: laid out by durations, alone or in a batch, to its own end."""

import torch

from tests.models.mini_rows import Rows, host, phonemes, small
from voxserve.models.mini.config import WINDOW
from voxserve.models.mini.stages import Ring
from voxserve.nn.attention import attention
from voxserve.requests import SpeechRequest


def test_a_batch_says_what_each_says_alone() -> None:
    three = {0: phonemes(1, 20), 2: phonemes(2, 33), 3: phonemes(3, 5)}
    together = Rows(small()).speak(three)
    for (slot, rows), codes in zip(three.items(), together, strict=True):
        assert torch.equal(Rows(small()).speak({slot: rows})[0], codes)


def test_codebooks_follow_each_other_and_end_by_themselves() -> None:
    rows = Rows(small())
    codes = rows.speak({1: phonemes(4, 12)})[0]
    frames = int(rows.state["lm.frames"][1])
    assert frames > 6
    for book in range(6):
        spoken = codes[book : book + frames, book]
        assert bool((spoken < 625).all())
        assert bool((codes[:book, book] == 625).all())
        assert bool((codes[book + frames :, book] == 625).all())


def test_the_step_logic_stops_where_the_codes_end() -> None:
    rows = Rows(small())
    codes = rows.speak({1: phonemes(4, 12)})[0]
    frames = int(rows.state["lm.frames"][1])
    logic = host().steps(4)
    logic.admit(
        1,
        host().prompt(SpeechRequest(text="A short sentence about nothing at all, said in one go.")),
    )
    slot = torch.tensor([1], dtype=torch.int32).numpy()
    for step, row in enumerate(codes):
        accepted = logic.accept(slot, slot * 0 + step, row[None].to(torch.int32).numpy())
        assert bool(accepted.ended[0]) == (step == frames + 4)
        if accepted.ended[0]:
            break
    assert accepted.frames[0] == frames


def test_blocks_are_read_apart() -> None:
    """Two blocks last as long as each of them alone, whatever stands in the places between."""
    model = small()
    pair = torch.from_numpy(phonemes(5, 30, 18)).long()[None, :, 0]
    alone = [pair[:, :32], pair[:, 256:276]]
    units = [int(model.lm.read(ids, ids >= 0)[1].sum()) for ids in alone]
    told, frames = model._told(pair, torch.tensor([512]), 4096)
    assert int(frames[0]) == told.shape[1] == -(-sum(units) // 2)


def test_a_cpu_skips_silence_alone() -> None:
    """What it reads of padded blocks is what the whole computation says of their real places."""
    model = small()
    ids = torch.from_numpy(phonemes(8, 20, 40, 9)).long().view(3, 256)
    ids[1] = 0
    inside = ids >= 0
    text, units = model._read_spoken(ids.clamp(min=0), inside)
    all_text, all_units = model.lm.read(ids.clamp(min=0), inside)
    for row in (0, 2):
        torch.testing.assert_close(text[row][inside[row]], all_text[row][inside[row]])
        assert torch.equal(units[row], all_units[row])
    assert not units[1].any()


def test_the_ring_holds_the_last_steps_in_any_order() -> None:
    generator = torch.Generator().manual_seed(1)
    past = torch.full((2, 2, WINDOW, 2, 4), 9.0)
    steps = WINDOW + 40
    keys, values, queries = torch.randn(3, steps, 1, 1, 2, 4, generator=generator).unbind(0)
    slots = torch.tensor([0])
    for step in range(steps):
        ring = Ring(past, slots, torch.tensor([step]), min(WINDOW, step + 1))
        out = ring(queries[step], keys[step], values[step])
    near = slice(steps - WINDOW, steps)
    plain = attention(
        queries[-1], keys[near, :, 0].transpose(0, 1), values[near, :, 0].transpose(0, 1), None
    )
    torch.testing.assert_close(out, plain)
    assert bool((past[1] == 9).all())


def test_long_speech_goes_past_the_window() -> None:
    rows = Rows(small())
    codes = rows.speak({2: phonemes(7, 240, 240)})[0]
    frames = int(rows.state["lm.frames"][2])
    assert frames > WINDOW
    assert bool((codes[:frames, 0] < 625).all())
