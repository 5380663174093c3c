"""The four stages of a model around the codes table: what every executable computes."""

import numpy as np
import torch

from voxserve.engine.lanes import Arrays
from voxserve.plugin import ModelSpec, Outputs, SpeechModel
from voxserve.scheduler.launches import Stage

_PCM_SCALE = 32_767.0


class Stages:
    """Runs a stage of the model on host arrays, over the model's state and the codes table.

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

    @torch.inference_mode()
    def run(self, stage: Stage, inputs: Arrays) -> Arrays:
        """Inputs as `SpeechModel` lists them, for any number of rows, with these differences.

        codec: `steps` [B, L] int64, the LM step of every frame (-1: none), in place of `codes` and
        `valid`. Returns codes [B, K] int32, or pcm [B, S] int16, or nothing for encode.
        Raises whatever the model raises.
        """
        if stage is Stage.DECODE:
            return self._decode(inputs)
        if stage is Stage.CODEC:
            return self._codec(inputs)
        if stage is Stage.PREFILL:
            return self._prefill(inputs)
        self._model.encode(_tensors(inputs), self._state)
        return {}

    def _prefill(self, inputs: Arrays) -> Arrays:
        slots = inputs["slots"]
        self._unprepared[slots] = True
        outputs = self._model.prefill(_tensors(inputs), self._state)
        self._unprepared[slots] = False
        return self._keep_codes(slots, np.zeros_like(slots), outputs)

    def _decode(self, inputs: Arrays) -> Arrays:
        slots = inputs["slots"]
        unprepared = self._unprepared[slots]
        if unprepared.any():
            # Its prefill failed after this step was queued. The row state still names pages of
            # the slot's last owner, so the step must not run on it.
            slots = np.where(unprepared, self._spare, slots)
            inputs = {**inputs, "slots": slots}
        outputs = self._model.decode(_tensors(inputs), self._state)
        return self._keep_codes(slots, inputs["steps"], outputs)

    def _codec(self, inputs: Arrays) -> Arrays:
        tensors = _tensors(inputs)
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
        return {"pcm": pcm.to(torch.int16).cpu().numpy()}

    def _keep_codes(self, slots: np.ndarray, steps: np.ndarray, outputs: Outputs) -> Arrays:
        codes = outputs["codes"]
        rows, columns = torch.from_numpy(slots), torch.from_numpy(steps)
        self._codes[rows, columns] = codes.to(torch.int16)
        return {"codes": codes.to(torch.int32).cpu().numpy()}


def _tensors(inputs: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in inputs.items()}
