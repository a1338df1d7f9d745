"""The commands of docs/tutorial.md, typed in order on two bare hosts, and what the page shows below them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testbed.console_page import LEFT_OUT, Typed, read_console, skeleton
from testbed.network_rig import CARD, Host, Rig, ssh_unavailable, unavailable
from testbed.terminal import Terminal
from tests.newcomer import make_checkout
from tests.places import REPOSITORY

PAGE = REPOSITORY / "docs" / "tutorial.md"
# What was printed, left behind to renew the page from.
TRANSCRIPT = REPOSITORY / "build" / "tutorial.txt"

# Everything that is typed otherwise than the page says:
# the checkout comes from this disk, with its environment, because there is no network to clone and to install from;
CLONED, CHECKOUT = "git clone ADDRESS", "cp -a {checkout}"
# whoever reads copies the line that the command above has printed;
COPIED = "THE LINE ABOVE"
# the hosts' network card has another name, and their user needs no sudo;
PAGES_CARD = "eth0"
NAMES = {PAGES_CARD: CARD, "sudo ": ""}
# a reboot is a host without power, which has it again after the next command;
REBOOT = "sudo reboot"
# and the short version trains less, and leaves out doctor, slow network and lost host, which have tests of their own.
FEWER_STEPS = {
    "-- train demo": "-- train demo train.max_steps=180",
    "train.max_steps=200": "train.max_steps=10",
    "schedule.warmup_steps=20": "schedule.warmup_steps=5",
}
LEFT_OUT_IF_SHORT = ("-- doctor", "--run runs/slow", REBOOT, "without vm2")

# Exit code of a program that Ctrl-C has ended.
INTERRUPTED = 130
# Pressed once the line above it has appeared.
INTERRUPT = "^C"
# Stands on the page for the home directory.
HOME = "/home/you"
# What these print depends on the machine, on how busy it is, and on the model: labels are compared.
IN_OTHER_WORDS = re.compile(r"\b(doctor|report|watch|translate)\b")
# At most four words before a colon, a question mark or a wide space; and the first word of a table's row.
LABEL = re.compile(r"^[\W\d]*([A-Za-z]+(?: [A-Za-z]+){0,3})(?=[:?]|  )|^│ ([a-z]+)")
# Keys are random, what the model says and which exchange fits depend on the processor, and ssh has words of its own.
FREE = re.compile(r"(?<=ssh-ed25519 ).*|(?<=hypothesis ).*|(?<=exchange: ).*|(?<=without vm2: ).*")


@dataclass
class Newcomer:
    """Somebody who types a page's commands on the hosts of a rig."""

    rig: Rig
    checkout: Path
    short: bool
    said: list[str] = field(default_factory=list)
    _terminals: dict[str, Terminal] = field(default_factory=dict)
    _off: Host | None = None

    def type(self, typed: Typed) -> None:
        """Type a command and read what it says; it must end well."""
        host = next(host for host in self.rig.hosts if host.name == typed.host)
        if typed.command == REBOOT:
            self.rig.power_off(host)
            self._off, self.said = host, []
            del self._terminals[host.name]
            return
        if host.name not in self._terminals:
            self._terminals[host.name] = Terminal(self.rig, host)
        command = self._as_typed(typed.command)
        code, self.said = self._terminals[host.name].type(command, self._interrupt(typed))
        # Ctrl-C was pressed, or the doctor advises against machines that are busy with other tests.
        meant = (code == INTERRUPTED and INTERRUPT in typed.shown) or (code == 1 and " doctor " in command)
        assert code == 0 or meant, "\n".join([command, *self.said])
        if self._off:
            self.rig.power_on(self._off)
            self._off = None

    def _as_typed(self, command: str) -> str:
        copied = {COPIED: self.said[0]} if self.said else {}
        changes = {CLONED: CHECKOUT.format(checkout=self.checkout), **copied, **NAMES}
        for shown, typed in (changes | (FEWER_STEPS if self.short else {})).items():
            command = command.replace(shown, typed)
        return command

    def _interrupt(self, typed: Typed) -> Callable[[str], bool] | None:
        """Whether a printed line is the one above the page's ^C; of lines of progress the one of that step."""
        if INTERRUPT not in typed.shown:
            return None
        awaited = typed.shown[typed.shown.index(INTERRUPT) - 1]
        return lambda line: (
            compared(line, loose=False) == compared(awaited, loose=False) and steps_of(line) == steps_of(awaited)
        )


def steps_of(line: str) -> list[str]:
    """The step that a line of progress tells of."""
    return re.findall(r"step (\d+)/", line)


def not_printed(typed: Typed, printed: list[str]) -> list[str]:
    """The lines below a command of the page that are not among what it has printed, in this order if words count."""
    loose = IN_OTHER_WORDS.search(typed.command) is not None
    real = [compared(line, loose) for line in printed]
    left = real if loose else iter(real)
    shown = [line for line in typed.shown if line not in (LEFT_OUT, INTERRUPT) and compared(line, loose)]
    return [line for line in shown if compared(line, loose) not in left]


def compared(line: str, loose: bool) -> str:
    """What of a line must be the same on every machine."""
    if not loose:
        return skeleton(FREE.sub("", line))
    label = LABEL.search(re.sub(r"^\[vm\d\] ", "", line))
    return (label[1] or label[2]) if label else ""


@pytest.mark.parametrize(
    "short", [pytest.param(True, marks=pytest.mark.slow), pytest.param(False, marks=pytest.mark.long)]
)
def test_every_command_of_the_page_works_and_prints_what_it_shows(short: bool, tmp_path: Path) -> None:
    if reason := unavailable() or ssh_unavailable():
        pytest.skip(reason)
    make_checkout(tmp_path)
    page = read_console(PAGE)
    if short:
        page = [
            typed
            for typed in page
            if not any(part in line for part in LEFT_OUT_IF_SHORT for line in (typed.command, *typed.shown))
        ]
    TRANSCRIPT.parent.mkdir(exist_ok=True)
    missing = []
    with Rig(bare=True) as rig, TRANSCRIPT.open("w", encoding="utf-8") as transcript:
        rig.serve_ssh()
        newcomer = Newcomer(rig, tmp_path, short)
        for typed in page:
            print(f"{typed.host}$ {typed.command}", file=transcript, flush=True)
            newcomer.type(typed)
            said = [line.replace(str(rig.hosts[0].home), HOME).replace(CARD, PAGES_CARD) for line in newcomer.said]
            print(*said, sep="\n", file=transcript, flush=True)
            if not short:
                missing += not_printed(typed, said)
    assert not missing, "\n".join(missing)
    (bleu, *_) = re.findall(r"test BLEU ([\d.]+)", TRANSCRIPT.read_text(encoding="utf-8"))
    assert short or float(bleu) >= 90
