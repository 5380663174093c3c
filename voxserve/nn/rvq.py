"""Residual vector quantisation: codes to vectors, and vectors to their nearest codes."""

import torch
from torch import Tensor


def centroids(sums: Tensor, usage: Tensor, floor: float = 1e-5) -> Tensor:
    """Codebook vectors from their running sums [..., N, D] and counts [..., N] (EnCodec, Mimi)."""
    return sums / usage.clamp(min=floor)[..., None]


def rvq_decode(codes: Tensor, books: Tensor) -> Tensor:
    """Sum of the vectors that codes [B, F, K] int64 name in books [K, N, D]. Returns [B, F, D]."""
    count, size, width = books.shape
    first = torch.arange(count, device=codes.device) * size
    return books.reshape(count * size, width)[codes + first].sum(dim=2)


def rvq_encode(x: Tensor, books: Tensor) -> Tensor:
    """Codes of x [B, F, D] in books [K, N, D], each the nearest (Euclidean) to what the books
    before it left over. Returns [B, F, K] int64."""
    residual, codes = x, []
    for book in books:
        code = torch.cdist(residual.float(), book.float()[None]).argmin(dim=-1)
        codes.append(code)
        residual = residual - book[code]
    return torch.stack(codes, dim=-1)
