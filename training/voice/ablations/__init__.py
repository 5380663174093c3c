"""Choices of the embedded voice against their alternatives, at a reduced budget."""
