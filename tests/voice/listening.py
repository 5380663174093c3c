"""The listener of the voice's tests is the benchmark's."""

from voxserve.bench.hearing import Audio, Heard, Listener, covered, error_rate, opinion, words

__all__ = ["Audio", "Heard", "Listener", "covered", "error_rate", "opinion", "words"]
