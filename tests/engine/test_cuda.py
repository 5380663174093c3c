"""The CUDA backend on tiny: graphs compute what the stages do, the lanes carry requests."""

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.harness import engine, prompt, settings_of, tiny
from tests.engine.test_trace_overlap import proofs
from voxserve.engine.build import build
from voxserve.engine.cuda import CudaBackend
from voxserve.engine.green_contexts import partition
from voxserve.scheduler.launches import Stage

pytestmark = pytest.mark.gpu

CUDA: dict[str, Any] = {"device": "cuda", "dtype": "float32"}


def test_partitions_are_disjoint_and_cover_the_device() -> None:
    total = torch.cuda.get_device_properties(0).multi_processor_count
    parts = partition(0, 32)
    assert parts.sms["whole"] == total
    assert parts.sms["codec"] >= 32
    assert parts.sms["lm"] + parts.sms["codec"] == total
    with pytest.raises(ValueError, match=str(total)):
        partition(0, total)


def test_replay_equals_eager_for_every_executable() -> None:
    host, model = tiny("float32", "cuda")
    built = build(settings_of({"engine": CUDA}), host.spec, model)
    backend = built.backend
    assert isinstance(backend, CudaBackend)
    built.warm_up(lambda *_: None)
    rng = np.random.default_rng(0)
    state = backend.stages.tensors
    for key in built.keys:
        inputs = dict(built.padding.blank(key, built.spec, built.sizes))
        rows = key.rows
        slots = np.arange(min(rows, built.sizes.slots), dtype=np.int64)
        if key.stage is not Stage.ENCODE:
            inputs["slots"] = np.concatenate([slots, np.full(rows - len(slots), 4)])
        if key.stage is Stage.PREFILL:
            inputs["lengths"] = rng.integers(1, key.units + 1, rows)
            inputs["seeds"] = rng.integers(0, 2**40, rows)
            pages = np.arange(rows * built.sizes.table_pages["kv"]).reshape(rows, -1)
            inputs["pages_kv"] = np.minimum(pages, built.sizes.pages["kv"])
        if key.stage is Stage.CODEC:
            inputs["steps"] = rng.integers(-1, 4, inputs["steps"].shape)
        state["codes"].zero_()  # an end code among those of a step is none of the codec's
        before = {name: tensor.clone() for name, tensor in state.items()}
        executable = backend.executables[key]
        executable.block.fill(inputs)
        eager = backend.stages.compute(key.stage, executable.block.tensors)
        torch.cuda.synchronize()
        after = {name: tensor.clone() for name, tensor in state.items()}
        for name, tensor in state.items():
            tensor.copy_(before[name])
        replayed = executable.replay(inputs)
        torch.cuda.synchronize()
        # Two rows with the same (spare) slot race, so only real rows are compared.
        for name, tensor in eager.items():
            real = tensor[: len(slots)].cpu().to(torch.int32)
            got = torch.from_numpy(np.asarray(replayed[name][: len(slots)], np.int32))
            assert int((got - real).abs().max()) <= 1, (key, name)
        for name, tensor in state.items():
            torch.testing.assert_close(tensor[:-1], after[name][:-1], atol=1e-5, rtol=1e-5)


def test_a_gpu_says_what_a_cpu_says() -> None:
    prompts = [prompt(f"Sentence number {n}.", seed=n, temperature=0.0) for n in range(6)]
    with engine({"engine": {"dtype": "float32"}}) as (api, _):
        expected = [heard.pcm for heard in api.say(*prompts)]
    with engine({"engine": CUDA}) as (api, _):
        got = [heard.pcm for heard in api.say(*prompts)]
        again = [api.say(each)[0].pcm for each in prompts]
    for ours, alone, theirs in zip(got, again, expected, strict=True):
        assert len(ours) == len(theirs)
        assert apart(ours, alone) <= 2
        assert apart(ours, theirs) <= 8


def test_urgent_work_runs_inside_background_work(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    settings = {
        "engine": {**CUDA, "slots": 34, "trace": path},
        "policy": {"background_batch": 8, "background_rows": 32, "ramp": 3},
    }
    with engine(settings) as (api, _):
        for number in range(32):
            api.submit(number, prompt(seed=number, steps=1500), ttfa_s=None, window_s=1000.0)
        api.until(lambda: all(api.heard[number].chunks for number in range(32)))
        for _ in range(50):
            api.say(prompt(steps=2), ttfa_s=0.2)
    assert any(json.loads(path.read_text())["traceEvents"])
    print("overlaps", len(proofs(json.loads(path.read_text())["traceEvents"])))


def test_many_requests_leave_nothing_behind() -> None:
    with engine({"engine": {**CUDA, "slots": 16}}) as (api, _):
        gc.collect()  # engines of other tests
        before = torch.cuda.memory_allocated()
        heard = api.say(*[prompt(seed=n, steps=3 + n % 40) for n in range(200)])
        assert all(each.pcm and each.end for each in heard)
        stats = api.settle()
        assert stats.slots_free == 16
        assert all(free == total for free, total in stats.pages.values())
        assert torch.cuda.memory_allocated() == before


def apart(ours: bytes, theirs: bytes) -> int:
    """Largest difference of two PCM streams of one length."""
    a, b = (np.frombuffer(pcm, np.int16).astype(np.int32) for pcm in (ours, theirs))
    return int(np.abs(a - b).max())
