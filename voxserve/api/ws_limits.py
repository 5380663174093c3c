"""Limits and close codes of `WS /v1/audio/speech/stream`."""

SLOW_READER_S = 10.0
"""Or the configured `slow_reader_s`, if that is less."""

LONGEST_WAIT_S = 1.0
"""Timers that a running utterance may yet set are looked at this often."""

MAX_TEXT_BYTES = 128 * 2**10
MAX_BUFFERED_CHARS = 256 * 2**10
MAX_UTTERANCES = 64
"""Of one session, being spoken or waiting for their turn."""

MAX_ERRORS = 10

NORMAL = 1000
GOING_AWAY = 1001
UNSUPPORTED_DATA = 1003
POLICY = 1008
TOO_BIG = 1009
ENGINE_FAILED = 1011
TRY_LATER = 1013

FATAL_CODES = {
    "engine_restarting": ENGINE_FAILED,
    "starting": ENGINE_FAILED,
    "draining": GOING_AWAY,
    "overloaded": TRY_LATER,
    "out_of_memory": TRY_LATER,
}
"""Errors after which the session cannot go on, and the code that it closes with."""
