"""The codec: codes to 24 kHz audio, and reference clips to codes.

Follows `HiggsAudioV2TokenizerModel` of transformers 5.23 with its parameter names, without what
only training used. It always runs in float32: its transposed convolutions do not bear less.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.higgs_audio_v3.config import Codec
from voxserve.models.higgs_audio_v3.semantic import Hearing, Hubert, SemanticConvs
from voxserve.nn.causal_conv import masked
from voxserve.nn.dac import Decoder, Encoder


class Book(nn.Module):
    embed: Tensor

    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self.register_buffer("embed", torch.zeros(codes, width))

    def nearest(self, x: Tensor) -> Tensor:
        """Codes [...] int64 of the vectors that are nearest to x [..., width]."""
        distance = self.embed.pow(2).sum(dim=1) - 2 * x @ self.embed.t()
        return distance.argmin(dim=-1)


class Level(nn.Module):
    """One codebook, between projections of its own."""

    def __init__(self, config: Codec) -> None:
        super().__init__()
        self.codebook = Book(config.codes, config.code_width)
        self.project_in = nn.Linear(config.hidden, config.code_width)
        self.project_out = nn.Linear(config.code_width, config.hidden)


class Quantizer(nn.Module):
    """Codebooks in a row, each for what the ones before it left over."""

    def __init__(self, config: Codec, books: int) -> None:
        super().__init__()
        self.quantizers = nn.ModuleList(Level(config) for _ in range(books))

    def forward(self, x: Tensor) -> Tensor:
        """x [B, F, hidden] -> codes [B, F, books] int64."""
        codes = []
        for level in self.quantizers:
            assert isinstance(level, Level)
            code = level.codebook.nearest(level.project_in(x))
            x = x - level.project_out(level.codebook.embed[code])
            codes.append(code)
        return torch.stack(codes, dim=-1)


class HiggsCodec(nn.Module):
    """Both directions. Call `finish` once the weights are there.

    latents: [books * codes, latent], what the decoder hears of each code of each codebook.
    """

    latents: Tensor
    starts: Tensor

    def __init__(self, config: Codec, books: int) -> None:
        super().__init__()
        self.config = config
        latent, hop = config.latent, config.hop
        self.acoustic_encoder = Encoder(config.encoder_width, latent, config.down_rates)
        self.acoustic_decoder = Decoder(latent, config.decoder_width, config.up_rates)
        self.encoder_semantic = SemanticConvs(config.semantic)
        self.semantic_model = Hubert(config.semantic)
        self.fc = nn.Linear(config.hidden, config.hidden)
        self.fc2 = nn.Linear(config.hidden, latent)
        self.quantizer = Quantizer(config, books)
        self.hearing = Hearing(config)
        self.pad = hop // 2

    def finish(self) -> None:
        """Fold codebooks, their projections and the one behind them into one table."""
        self.semantic_model.encoder.pos_conv_embed.finish()
        tables = []
        for level in self.quantizer.quantizers:
            assert isinstance(level, Level)
            out, fc2 = level.project_out, self.fc2
            vectors = level.codebook.embed.double() @ out.weight.double().t() + out.bias.double()
            tables.append(vectors @ fc2.weight.double().t())
        tables[0] = tables[0] + self.fc2.bias.double()
        size = len(tables[0])
        starts = torch.arange(len(tables), device=tables[0].device) * size
        self.register_buffer("latents", torch.cat(tables).float(), persistent=False)
        self.register_buffer("starts", starts, persistent=False)

    def decode(self, codes: Tensor, real: Tensor, left: int, right: int) -> Tensor:
        """Audio of the frames between `left` and `right` frames of context.

        codes: [B, L, books] int64; what is no sound (a control code) counts as code 0, as in the
        reference. real: [B, L] bool, frames that exist. Returns [B, (L - left - right) * hop].
        """
        codes = torch.where(codes < self.config.codes, codes, 0)
        rows = (codes + self.starts).flatten(0, 1)
        x = functional.embedding_bag(rows, self.latents, mode="sum")
        x = x.view(*codes.shape[:2], -1).transpose(1, 2)
        audio: Tensor = self.acoustic_decoder(x, real, left, right)
        return audio

    def encode(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """audio [B, T] float32 at the codec's rate, lengths [B] int64 samples, a second at least.

        Returns (codes [B, F, books] int64, frames [B]); what lies behind a row's frames is
        unspecified. F is that of a clip of T samples.
        """
        # Otherwise a GPU rounds what goes into float32 convolutions to ten bits, and codes move.
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return self._encode(masked(audio, lengths), lengths)

    def _encode(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        meaning, frames = self.hearing(audio, lengths, self.semantic_model, self.encoder_semantic)
        sound = self._sound(audio, lengths, frames)[:, :, : meaning.shape[2]]
        x = torch.cat((sound, meaning), dim=1).transpose(1, 2)
        codes: Tensor = self.quantizer(self.fc(x))
        return codes, frames

    def _sound(self, audio: Tensor, lengths: Tensor, frames: Tensor) -> Tensor:
        """Acoustic latents, as many as there are semantic ones: where the clip alone does not make
        so many, the reference puts half a frame of silence on either side of it."""
        have = lengths
        for rate in self.config.down_rates:
            have = (have + rate % 2) // rate
        shift = torch.where(have == frames, 0, self.pad)
        padded = functional.pad(audio, (self.pad, self.pad))
        place = torch.arange(padded.shape[1], device=audio.device) + self.pad - shift[:, None]
        padded = padded.gather(1, place.clamp(max=padded.shape[1] - 1))
        latents, _ = self.acoustic_encoder(padded, lengths + 2 * shift)
        out: Tensor = latents
        return out
