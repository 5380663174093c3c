"""Fused kernels, one file each, with their plain torch references."""
