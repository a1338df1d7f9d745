"""The user's wish to stop a launch: the first signal asks to save and stop, the second one ends everything at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tandem.process_exit import STOP_SIGNALS, stop_code

T = TypeVar("T")


class UserStop:
    """Whether, by which signal and how urgently the user has asked to stop."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.asked, self.at_once = asyncio.Event(), asyncio.Event()

    @property
    def code(self) -> int:
        """The exit code of a launch that has stopped because of it."""
        assert self.number is not None
        return stop_code(self.number)

    async def wait(self) -> int:
        """The first signal, once it has come."""
        await self.asked.wait()
        assert self.number is not None
        return self.number

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear signals for the length of a block."""
        loop = asyncio.get_running_loop()
        # nohup starts programs so that a closed terminal does not end them.
        heard = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        for number in heard:
            loop.add_signal_handler(number, self._hear, number)
        try:
            yield
        finally:
            for number in heard:
                loop.remove_signal_handler(number)

    def _hear(self, number: int) -> None:
        if self.number is not None:
            self.at_once.set()
            return
        self.number = number
        self.asked.set()

    async def unless_asked(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of some work, or None as soon as the user asks to stop."""
        working, stopping = asyncio.create_task(work), asyncio.create_task(self.asked.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            stopping.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait([working])
