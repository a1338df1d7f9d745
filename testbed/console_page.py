"""Commands that a page shows, and what it shows below each of them, to be held against what they print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# A `$`, with the name of a host before it where there are several.
PROMPT = re.compile(r"^(\w*)\$ (.+)$")
# Stands alone where something was left out.
LEFT_OUT = "..."


@dataclass(frozen=True)
class Typed:
    """A command behind a prompt of a page."""

    host: str
    command: str
    shown: tuple[str, ...]
    """The lines below it, up to the next prompt or the end of the block."""


def read_console(page: Path) -> list[Typed]:
    """All commands in the console blocks of a page, in order; lines that end in a backslash are put together."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found: list[Typed] = []
    for block in blocks:
        for line in re.sub(r"\\\n *", "", block).splitlines():
            if prompt := PROMPT.match(line):
                found.append(Typed(prompt[1], prompt[2], ()))
            elif found:
                last = found[-1]
                found[-1] = Typed(last.host, last.command, (*last.shown, line))
    return found


def skeleton(line: str) -> str:
    """A line without its numbers, and without the number format, which depends on the processor."""
    return re.sub(r"[\d.,:e+-]+", "#", re.sub("bfloat16|float32", "", line)).strip()
