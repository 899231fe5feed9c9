"""Sums of a group over sockets: the same bits for any number of processes, and an end for all if one fails or asks for another."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shards import close, linked_hubs, on_members

from everypair.cluster import links
from everypair.cluster.hub import Hub, Member
from everypair.runtime.group import GroupError

SIZES = [0, 1, 5, 1_000, 7_000]  # the last are sent in parts


def sums(member: Member) -> list[bytes]:
    """A few sums of arrays that depend on the shard."""
    random = np.random.default_rng(member.rank)
    found = [member.total(random.normal(size=n) * 10.0 ** random.integers(-9, 9, n)).tobytes() for n in SIZES]
    whole = member.total(random.normal(size=(3, 4)).astype(np.float32))
    assert whole.shape == (3, 4)
    whole += 1.0  # what one member does to a sum changes nothing for the others
    return [*found, whole.tobytes(), b"".join(member.gather(bytes([member.rank]) * member.rank))]


@pytest.mark.parametrize("shards", [2, 8])
def test_bits_depend_on_the_number_of_shards_alone(shards: int) -> None:
    expected = on_members([Hub(shards)], sums)[0]
    assert expected[-1] == b"".join(bytes([shard]) * shard for shard in range(shards))
    for processes in (1, 2, 3, 5, 8):
        if processes <= shards:
            hubs = linked_hubs(shards, processes, n_threads=1 + processes % 2)
            assert on_members(hubs, sums) == [expected] * shards
            close(hubs)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 40), processes=st.integers(1, 4))
@settings(max_examples=10)
def test_a_sum_is_that_of_all_shards(seed: int, n: int, processes: int) -> None:
    values = np.random.default_rng(seed).integers(-9, 9, (4, n)).astype(float)
    hubs = linked_hubs(4, processes)
    for found in on_members(hubs, lambda member: member.total(values[member.rank])):
        np.testing.assert_array_equal(found, values.sum(axis=0))
    close(hubs)


def test_any_member_can_decide() -> None:
    hubs = linked_hubs(4, 2)
    assert on_members(hubs, lambda member: [member.agreed(member.rank == 3), member.agreed(False)]) == [[True, False]] * 4
    close(hubs)


def test_what_is_exchanged_is_counted() -> None:
    hubs = linked_hubs(4, 4)
    on_members(hubs, lambda member: [member.total(np.zeros(3)), member.total(np.zeros(100_000))])
    for hub in hubs:
        rounds, summed, sent, received = hub.counts
        assert (rounds, summed) == (2, 800_024)
        assert 2 * 3 * 200_000 <= sent <= 2 * 3 * 200_000 + 2_000  # its part to the others, and theirs added up
        assert abs(sent - received) < 1_000
    close(hubs)


def ask_for_another(member: Member) -> Any:
    member.total(np.zeros(3))
    return member.total(np.zeros(4)) if member.rank == 2 else member.total(np.zeros(3))


def fail(member: Member) -> Any:
    member.total(np.zeros(3))
    if member.rank == 2:
        raise ZeroDivisionError("a shard that fails")
    return member.total(np.zeros(3))


def end_early(member: Member) -> Any:
    return member.total(np.zeros(3)) if member.rank == 2 else [member.total(np.zeros(3)), member.total(np.zeros(3))]


def ask_elsewhere(member: Member) -> Any:
    if member.rank == 2:
        return member.total(np.zeros(3))
    return member.total(np.zeros(3))


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("work", [ask_for_another, fail, ask_elsewhere])
def test_divergence_ends_all_at_once(work: Any, processes: int) -> None:
    hubs = linked_hubs(4, processes)
    began = time.monotonic()
    found = on_members(hubs, work)
    assert time.monotonic() - began < 5.0
    assert all(isinstance(error, GroupError | ZeroDivisionError) for error in found)
    texts = [str(error) for error in found if isinstance(error, GroupError)]
    assert len(texts) >= 3
    if work is fail:
        assert any("a shard that fails" in text for text in texts)
    else:  # the names of both calls
        assert any(work.__name__ in text and "diverged" in text and text.count(work.__name__) >= 2 for text in texts), texts
    close(hubs)


def test_a_shard_that_ends_early_is_noticed() -> None:
    hubs = linked_hubs(4, 1)
    found = on_members(hubs, end_early)
    assert sum(isinstance(error, GroupError) and "has ended" in str(error) for error in found) == 3


def test_a_process_that_is_gone_is_noticed() -> None:
    hubs = linked_hubs(2, 2)
    close(hubs[1:])
    (found,) = on_members(hubs[:1], lambda member: member.total(np.zeros(3)))
    assert isinstance(found, GroupError)
    assert "process 1 is gone" in str(found)
    close(hubs)


def test_a_process_that_does_not_answer_is_given_up() -> None:
    hubs = linked_hubs(2, 2, timeout=0.2)
    (found,) = on_members(hubs[:1], lambda member: member.total(np.zeros(3)))
    assert isinstance(found, GroupError)
    assert "process 1 did not answer for 0.2 s" in str(found)
    close(hubs)


def test_who_does_not_know_the_token_is_not_let_in() -> None:
    listener = links.Listener("127.0.0.1")
    accepted: dict[int, socket.socket] = {}
    thread = threading.Thread(target=lambda: accepted.update(listener.accept(0, [1], b"right", 30.0)))
    thread.start()
    for wrong in (b"wrong", b""):
        with pytest.raises(GroupError):
            links.connect(listener.address, 1, 0, wrong, 10.0)
    with socket.create_connection(listener.address) as noise:
        noise.sendall(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 1_000)
    right = links.connect(listener.address, 1, 0, b"right", 10.0)
    thread.join()
    assert list(accepted) == [1]
    for connection in (right, *accepted.values()):
        connection.close()
    listener.close()


@pytest.mark.parametrize(
    "frame",
    [
        b"\x80\x04\x95" + b"x" * 60,
        links.PREFIX.pack(links.MAGIC, links.DATA, 1, 0, 2**60),
        links.PREFIX.pack(links.MAGIC, links.DATA, 1, 60_000, 24) + b"x" * 60_000,
        links.PREFIX.pack(links.MAGIC, links.ABORT, 1, 0, 2**40),
        links.PREFIX.pack(links.MAGIC, 77, 1, 0, 0),
        links.PREFIX.pack(b"NONE", links.DATA, 1, 0, 0),
    ],
)
def test_frames_that_are_not_expected_are_refused(frame: bytes) -> None:
    ours, theirs = socket.socketpair()
    hub = Hub(2, [(0, 1), (1, 2)], links.Links(0, {1: ours}, 10.0))
    theirs.sendall(frame)
    (found,) = on_members([hub], lambda member: member.total(np.zeros(3)))
    assert isinstance(found, GroupError)
    theirs.close()
    close([hub])


def test_the_number_of_shards_is_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="must be a power of two, got 3"):
        Hub(3)
