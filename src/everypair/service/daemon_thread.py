"""Work that may take long, or for ever, beside an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

PREFIX = "everypair-daemon-"  # of the names of threads
Result = TypeVar("Result")


async def in_daemon_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """The result of a function, computed in a thread that does not keep the process from ending, as those of an executor do."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Result] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if result.done():
            return
        result.set_result(value) if error is None else result.set_exception(error)

    def compute() -> None:
        value, error = None, None
        try:
            value = function(*arguments)
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=compute, daemon=True, name=f"{PREFIX}{function.__name__}").start()
    return await result


def daemon_threads() -> bool:
    """Whether such a thread is running."""
    return any(thread.name.startswith(PREFIX) for thread in threading.enumerate())
