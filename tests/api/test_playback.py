import pytest

from voxserve.api.playback import Playback


def test_audio_in_time_never_stalls() -> None:
    player = Playback()
    for number in range(10):
        player.wrote(1.0, now=100 + 0.9 * number)
    assert (player.audio_s, player.stalls, player.stalled) == (10.0, 0, False)


def test_late_audio_stalls_for_as_long_as_it_is_late() -> None:
    player = Playback()
    player.wrote(1.0, now=100)
    player.wrote(1.0, now=101.5)  # half a second of silence, playback goes on from here
    player.wrote(1.0, now=102.5)  # exactly in time again
    player.wrote(1.0, now=103.7)
    assert player.stalls == 2
    assert player.stalled_s == pytest.approx(0.7)
    assert player.stalled


def test_waiting_for_the_clients_own_text_is_no_stall() -> None:
    player = Playback()
    player.wrote(1.0, now=100)
    player.wrote(1.0, now=110, excused=True)
    player.wrote(1.0, now=111)
    assert (player.stalls, player.stalled_s) == (0, 0.0)


def test_pauses_under_ten_milliseconds_are_inaudible() -> None:
    player = Playback()
    player.wrote(1.0, now=100)
    player.wrote(1.0, now=101.009)
    assert player.stalls == 1 and not player.stalled
