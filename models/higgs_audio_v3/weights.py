"""From a checkpoint's files, or random numbers of the same shapes, to the modules."""

import re

import torch

from voxserve.checkpoints import dummy_weights, load_weights
from voxserve.models.higgs_audio_v3.codec import HiggsCodec
from voxserve.models.higgs_audio_v3.config import HiggsConfig
from voxserve.models.higgs_audio_v3.lm import HiggsLm
from voxserve.nn.blank import blank
from voxserve.plugin import Checkpoint

CODES = "tied.embedding.modality_embeddings.0."
SOUND = f"{CODES}model."

_UNUSED = re.compile(
    r"tied\.head\."  # copies of the tied tables; no text is ever said
)
_UNUSED_SOUND = re.compile(
    r"fc1\.|decoder_semantic\."  # the semantic side was decoded in training alone,
    r"|semantic_model\.masked_spec_embed$"  # nothing is masked here,
    r"|quantizer\.quantizers\.\d+\.codebook\.(?:inited|cluster_size|embed_avg)$"  # running means
)
_OLD_NORM = re.compile(r"(.*pos_conv_embed\.conv)\.weight_([gv])$")


def rename_lm(name: str) -> str | None:
    """The language model's tensors of the published file."""
    if _UNUSED.match(name) or name.startswith(SOUND):
        return None
    if name.startswith(CODES):
        return name.replace(f"{CODES}embedding.", "codes.")
    return name.replace("tied.embedding.text_embedding.", "text.")


def rename_sound(name: str) -> str | None:
    """The codec's tensors of the published file."""
    if not name.startswith(SOUND):
        return None
    inner = name.removeprefix(SOUND)
    if _UNUSED_SOUND.match(inner):
        return None
    old = _OLD_NORM.match(inner)
    return f"{old[1]}.parametrizations.weight.original{'gv'.index(old[2])}" if old else inner


def load_lm(
    checkpoint: Checkpoint, config: HiggsConfig, device: str, dtype: torch.dtype
) -> HiggsLm:
    """Raises CheckpointError on missing, unexpected or misshapen tensors."""
    with blank():
        module = HiggsLm(config.body)
    if checkpoint.dummy or checkpoint.folder is None:
        dummy_weights(module, device=device, dtype=dtype)
    else:
        load_weights(module, checkpoint.folder, device=device, dtype=dtype, rename=rename_lm)
    return module


def load_codec(checkpoint: Checkpoint, config: HiggsConfig, device: str) -> HiggsCodec:
    """In float32, whatever the files hold. Raises as `load_lm` does."""
    with torch.device("meta"):
        module = HiggsCodec(config.codec, config.body.codebooks)
    dtype = torch.float32
    if checkpoint.dummy or checkpoint.folder is None:
        dummy_weights(module, device=device, dtype=dtype, moments=_moments)
    else:
        load_weights(module, checkpoint.folder, device=device, dtype=dtype, rename=rename_sound)
    module.finish()
    return module


def _moments(name: str, shape: tuple[int, ...]) -> tuple[float, float] | None:
    """Frequencies of one, codebooks as large as what is compared with them, and residual branches
    so small that the sound keeps its size."""
    last = name.rsplit(".", 1)[-1]
    if last in ("alpha", "original0"):
        return 1.0, 0.0
    if last == "embed":
        return 0.0, 1.0
    if ".res_unit" in name and name.endswith("conv2.weight"):
        return 0.0, 0.3 * shape[1] ** -0.5
    return (0.0, 0.01) if name == "acoustic_decoder.conv2.weight" else None
