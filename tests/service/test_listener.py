"""The listening socket: how it stops listening, and how another service takes it over."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest

from everypair.service.handover import Handover, take_over
from everypair.service.listener import Acceptor, open_listener, refuse_new_connections


class Greeting(asyncio.Protocol):
    """Sends a byte on each connection and closes it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"!")
        transport.close()


def test_connections_that_wait_are_accepted_and_new_ones_are_not() -> None:
    async def finish(listener: socket.socket) -> None:
        await Acceptor(listener, Greeting).finish()

    with ExitStack() as opened:
        listener = open_listener("127.0.0.1", 0)
        address = listener.getsockname()
        waiting = [opened.enter_context(socket.create_connection(address)) for _ in range(5)]
        refuse_new_connections(listener)
        late = opened.enter_context(socket.socket())
        late.settimeout(0.05)
        with pytest.raises(TimeoutError):
            late.connect(address)
        asyncio.run(finish(listener))
        assert [connection.recv(2) for connection in waiting] == [b"!"] * 5
        with socket.socket() as later:
            later.settimeout(10)
            with pytest.raises(ConnectionRefusedError):
                later.connect(address)


def test_one_service_at_a_time_gets_the_socket() -> None:
    async def hand_over() -> None:
        with open_listener("127.0.0.1", 0) as listener:
            address = listener.getsockname()
            old = Handover(listener, None)
            assert not old.shared
            found = await asyncio.to_thread(take_over, *address)
            assert found is not None
            assert await asyncio.to_thread(take_over, *address) is None
            assert old.shared
            heirs, connection = found
            new = Handover(heirs, connection)
            assert new.shared
            assert heirs.getsockname() == address
            old.close()
            while new.shared:
                await asyncio.sleep(0.01)
            again = await asyncio.to_thread(take_over, *address)
            assert again is not None, "the new service has the name now"
            for end in again:
                end.close()
            while new.shared:
                await asyncio.sleep(0.01)
            new.close()
            heirs.close()
            assert await asyncio.to_thread(take_over, *address) is None

    asyncio.run(hand_over())
