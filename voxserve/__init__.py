"""Streaming text-to-speech server for Speech Language Models."""

__all__ = ["__version__"]

__version__ = "0.1.0"
