"""The four stages of a model around the codes table: what every executable computes."""

import numpy as np
import torch

from voxserve.engine.lanes import Arrays
from voxserve.plugin import Inputs, ModelSpec, SpeechModel
from voxserve.scheduler.launches import Stage

_PCM_SCALE = 32_767.0


class Stages:
    """Runs a stage of the model over the model's state and the codes table.

    The codes of each LM step go into the table on the device, and the codec reads them there by
    (slot, step), so codes reach the codec without a way over the host. Launches of one lane must
    run in order; stages of different lanes may run at the same time.
    """

    def __init__(
        self,
        model: SpeechModel,
        spec: ModelSpec,
        state: dict[str, torch.Tensor],
        codes: torch.Tensor,
    ) -> None:
        self._model = model
        self._state = state
        self._codes = codes
        self._spare = codes.shape[0] - 1
        self._step_offsets = torch.tensor([step for step, _ in spec.columns], device=codes.device)
        self._codebooks = torch.tensor([book for _, book in spec.columns], device=codes.device)
        self._unprepared = np.zeros(codes.shape[0], np.bool_)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """All that a stage may change: the state by name, and the codes table as `codes`."""
        return {**self._state, "codes": self._codes}

    @torch.inference_mode()
    def compute(self, stage: Stage, io: Inputs) -> dict[str, torch.Tensor]:
        """One stage on tensors of the device: nothing is read back, so it can be captured.

        Inputs as `SpeechModel` lists them, for any number of rows, with this difference: the codec
        gets `steps` [B, L] int64, the LM step of every frame (-1: none), in place of `codes` and
        `valid`. Returns codes [B, K] int32, or pcm [B, S] int16, or nothing for encode.
        Raises whatever the model raises.
        """
        if stage is Stage.CODEC:
            return {"pcm": self._codec(io)}
        if stage is Stage.ENCODE:
            self._model.encode(io, self._state)
            return {}
        slots = io["slots"]
        if stage is Stage.PREFILL:
            steps, outputs = torch.zeros_like(slots), self._model.prefill(io, self._state)
        else:
            steps, outputs = io["steps"], self._model.decode(io, self._state)
        codes = outputs["codes"]
        self._codes[slots, steps] = codes.to(torch.int16)
        return {"codes": codes.to(torch.int32)}

    def run(self, stage: Stage, inputs: Arrays) -> Arrays:
        """`compute` on host arrays, for a device that shares the host's memory."""
        slots = inputs.get("slots")
        if stage is Stage.PREFILL and slots is not None:
            self._unprepared[slots] = True
        elif stage is Stage.DECODE and slots is not None:
            unprepared = self._unprepared[slots]
            if unprepared.any():
                # Its prefill failed after this step was queued. The row state still names pages of
                # the slot's last owner, so the step must not run on it.
                inputs = {**inputs, "slots": np.where(unprepared, self._spare, slots)}
        outputs = self.compute(stage, {n: torch.from_numpy(a) for n, a in inputs.items()})
        if stage is Stage.PREFILL and slots is not None:
            self._unprepared[slots] = False
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def _codec(self, io: Inputs) -> torch.Tensor:
        tensors = dict(io)
        steps = tensors.pop("steps")
        valid = steps >= 0
        wanted = (steps.clamp(min=0).unsqueeze(-1) + self._step_offsets).clamp(
            max=self._codes.shape[1] - 1
        )
        codes = self._codes[tensors["slots"][:, None, None], wanted, self._codebooks]
        tensors["codes"] = codes.to(torch.int64) * valid.unsqueeze(-1)
        tensors["valid"] = valid
        audio = self._model.codec(tensors, self._state)["audio"]
        pcm = (audio * _PCM_SCALE).round_().clamp_(-_PCM_SCALE - 1, _PCM_SCALE)
        return pcm.to(torch.int16)
