"""Tile plans: what a launch is told about the SMs it runs on."""

import threading

from voxserve.kernels.tiles import fixed, fixed_tiles, on_sms, sms


def test_sms_are_those_of_the_partition_inside() -> None:
    before = sms()
    with on_sms(32):
        assert sms() == 32
        with on_sms(100):
            assert sms() == 100
        assert sms() == 32
    assert sms() == before > 0


def test_fixed_is_off_by_default_and_can_be_left_off() -> None:
    assert not fixed()
    with fixed_tiles():
        assert fixed()
        with fixed_tiles(on=False):
            assert not fixed()
    assert not fixed()


def test_each_thread_has_its_own() -> None:
    seen: list[int] = []
    with on_sms(7):
        thread = threading.Thread(target=lambda: seen.append(sms()))
        thread.start()
        thread.join()
    assert seen != [7]
