"""Keys and values of the language model in pages, read by a kernel in decode steps, for CUDA."""

from torch import Tensor

from voxserve.kernels.paged_decode import paged_decode
from voxserve.nn.attention import PagedKv, causal


class FusedKv(PagedKv):
    """Reads the pages that a row uses; plain torch would gather whole page tables."""

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        at = self.paging
        self.cache[at.page, 0, at.offset] = keys.to(self.cache.dtype)
        self.cache[at.page, 1, at.offset] = values.to(self.cache.dtype)
        if at.fresh:
            return causal(queries, keys, values)
        mixed = paged_decode(queries[:, 0].contiguous(), self.cache, at.pages, at.positions[:, 0])
        return mixed[:, None]
