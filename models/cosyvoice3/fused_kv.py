"""Keys and values of the language model in pages, read by a kernel in decode steps, for CUDA."""

from torch import Tensor

from voxserve.kernels.paged_decode import paged_decode
from voxserve.nn.attention import PagedKv


class FusedKv(PagedKv):
    """Reads the pages that a row uses; plain torch would gather whole page tables."""

    def look(self, queries: Tensor) -> Tensor:
        """`queries` [B, 1, H, D]: one position a row."""
        at = self.paging
        mixed = paged_decode(queries[:, 0].contiguous(), self.cache, at.pages, at.positions[:, 0])
        return mixed[:, None]
