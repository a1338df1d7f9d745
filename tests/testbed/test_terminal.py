"""The hosts and shells on which pages are typed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.console_page import Typed, read_console, skeleton
from testbed.network_rig import Rig, ssh_unavailable, unavailable
from testbed.terminal import Terminal


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    if reason := unavailable() or ssh_unavailable():
        pytest.skip(reason)
    with Rig(bare=True) as hosts:
        hosts.serve_ssh()
        yield hosts


def test_a_shell_remembers_what_was_typed(rig: Rig) -> None:
    terminal = Terminal(rig, rig.hosts[0])
    assert terminal.type("sleep 1000 &")[0] == 0
    assert terminal.type("cd /tmp && NAME=value") == (0, [])
    assert terminal.type("pwd; echo $NAME; echo wrong >&2; false") == (1, ["/tmp", "value", "wrong"])
    assert terminal.type("kill %1")[0] == 0


def test_ctrl_c_ends_what_is_in_the_foreground(rig: Rig) -> None:
    terminal = Terminal(rig, rig.hosts[0])
    terminal.type("sleep 1000 &")
    code, printed = terminal.type("(echo first; echo 2; sleep 1000)", lambda line: line == "2")
    assert (code, printed[0]) == (130, "first")
    assert terminal.type("kill $!")[0] == 0


def test_bare_hosts_have_homes_and_cores_of_their_own(rig: Rig) -> None:
    first, second = (Terminal(rig, host) for host in rig.hosts)
    assert first.type("touch file && ls ~") == (0, ["file"])
    assert second.type("ls ~; nproc; [ ~ = ~root ]") == (0, ["1"])


def test_a_key_opens_a_bare_host(rig: Rig) -> None:
    first, second = (Terminal(rig, host) for host in rig.hosts)
    first.type("ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519")
    key = first.type("cat ~/.ssh/id_ed25519.pub")[1][0]
    no_questions = "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new"
    assert first.type(f"{no_questions} vm2 hostname")[0] == 255
    second.type(f"mkdir -p ~/.ssh && echo '{key}' >> ~/.ssh/authorized_keys")
    assert first.type(f"{no_questions} vm2 hostname") == (0, ["vm2"])


def test_a_page_is_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ one \\\n    more\nsaid\n```\n$ no\n```\nnor this\n```\n```console\nvm1$ two\n```\n")
    assert read_console(page) == [Typed("", "one more", ("said",)), Typed("vm1", "two", ())]


def test_numbers_and_formats_are_no_part_of_a_skeleton() -> None:
    assert skeleton("step 10/450  loss 7.6 on cpu, bfloat16") == skeleton("step 2/9  loss 11.25 on cpu, float32")
