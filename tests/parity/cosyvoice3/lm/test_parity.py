"""Ids, prompts and greedy codes equal those of the public reference, which made cases.json."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.cosyvoice3.rig import Rig, host, prompt, silence
from tests.models.cosyvoice3.sound_checkpoint import codes
from voxserve.models.cosyvoice3.tokens import marks
from voxserve.requests import Prompt

CASES: dict[str, Any] = json.loads(Path(__file__).with_name("cases.json").read_text("utf-8"))


def asked(case: dict[str, Any]) -> Prompt:
    """The case as a request, greedy, with the reference's least length, which it never enforces."""
    clip = silence(case["codes"], case.get("ref_text"))
    made = prompt(case["text"], clip, instructions=case.get("instruction"), temperature=0.0)
    made.sampling[4] = 0
    return made


def rig_with(case: dict[str, Any]) -> Rig:
    """Clip 0 has the codes that the reference was given."""
    rig = Rig()
    rig.state["clip.codes"][0, : case["codes"]] = codes("clip", case["codes"])
    rig.state["clip.count"][0] = case["codes"]
    return rig


@pytest.mark.parametrize("case", CASES["spoken"], ids=lambda case: case["text"])
def test_greedy_codes_are_the_reference_s(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rig_with(case)
    if case.get("repeats"):
        monkeypatch.setattr(rig.model.sampler, "limit", 1000.0)
    assert rig.speak(asked(case)) == case["said"]


def test_the_cases_end_by_themselves_and_at_their_limit() -> None:
    """The reference asks for two codes a text token at least, and masks the wrong id for it."""
    ends = {
        (len(case["said"]) < asked(case).max_steps, len(case["said"]) < asked(case).input_tokens)
        for case in CASES["spoken"]
    }
    assert ends == {(True, False), (False, False), (True, True)}


def test_the_least_length_is_kept_where_the_reference_stops_early() -> None:
    case = min(CASES["spoken"], key=lambda case: len(case["said"]) / len(case["text"]))
    early = asked(case)
    early.sampling[4] = least = 2 * early.input_tokens
    said = rig_with(case).speak(early)
    assert said[: len(case["said"])] == case["said"]
    assert len(said) >= least > len(case["said"])


@pytest.mark.parametrize("case", CASES["read"], ids=lambda case: case["text"])
def test_text_has_the_reference_s_ids(case: dict[str, Any]) -> None:
    assert host().tokens.encode(case["text"]) == case["ids"]


def test_marks_have_the_reference_s_ids() -> None:
    assert marks()[1:] == list(CASES["marks"])
    assert [151_643 + place for place in range(1, len(marks()))] == list(CASES["marks"].values())
    assert CASES["ids"] == 151_643 + len(marks())


@pytest.mark.parametrize("name", ["q_proj.bias", "v_proj.bias", "speech_embedding.weight"])
def test_a_damaged_tensor_is_noticed(name: str) -> None:
    case = CASES["spoken"][0]
    tensors = [t for n, t in Rig().model.lm.state_dict().items() if n.endswith(name)]
    kept = [tensor.clone() for tensor in tensors]
    try:
        for tensor in tensors:
            tensor.mul_(0.5)
        assert rig_with(case).speak(asked(case)) != case["said"]
    finally:
        for tensor, before in zip(tensors, kept, strict=True):
            tensor.copy_(before)


def test_a_lost_second_draw_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["spoken"][0]
    rig = rig_with(case)
    monkeypatch.setattr(rig.model.sampler, "limit", 1000.0)
    assert rig.speak(asked(case)) != case["said"]


def test_positions_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["spoken"][0]
    rig = rig_with(case)
    monkeypatch.setattr(rig.model.lm.model.rope, "frequencies", torch.ones(8))
    assert rig.speak(asked(case)) != case["said"]
