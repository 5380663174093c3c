"""Tiles that measured fastest, as `benchmarks/lm_tiles.py` writes them.

(kind, N, K, rows, SMs) -> rows, columns and depth of a tile, split, stages, warps.
"""

MEASURED: dict[tuple[str, int, int, int, int], tuple[int, int, int, int, int, int]] = {}
