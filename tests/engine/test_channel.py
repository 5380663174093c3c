import socket
from collections.abc import Iterator

import pytest

from voxserve.engine.channel import Channel, ChannelClosed
from voxserve.wire import Cancel, Drain, Frames, FromEngine, PcmChunk, decode_from_engine, encode


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def test_messages_arrive_whole_however_they_are_cut(ends: tuple[Channel, socket.socket]) -> None:
    channel, api = ends
    data = encode(Cancel(7)) + encode(Drain())
    for byte in data[:-1]:
        api.send(bytes([byte]))
    assert channel.receive() == [Cancel(7)]
    api.send(data[-1:])
    assert channel.receive() == [Drain()]
    assert channel.receive() == []


def test_a_peer_that_does_not_read_blocks_nothing_and_gets_all_of_it_in_order(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, api = ends
    chunks = [PcmChunk(1, index, bytes([index % 256]) * 40_000, False) for index in range(400)]
    for chunk in chunks:
        channel.send(chunk)
    channel.flush()
    assert channel.backlog
    frames = Frames()
    got: list[FromEngine] = []
    while len(got) < len(chunks):
        got += [decode_from_engine(body) for body in frames.feed(api.recv(100_000))]
        channel.flush()
    assert got == chunks
    assert not channel.backlog


def test_a_closed_peer_is_noticed_by_reading_and_by_writing(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, api = ends
    api.close()
    with pytest.raises(ChannelClosed):
        channel.receive()
    channel.send(PcmChunk(1, 0, b"", True))
    with pytest.raises(ChannelClosed):
        channel.flush()


def test_bytes_that_are_no_message_are_an_error(ends: tuple[Channel, socket.socket]) -> None:
    channel, api = ends
    api.send(b"\x02\x00\x00\x00\xc0\xc0")
    with pytest.raises(ValueError, match="Expected"):
        channel.receive()
