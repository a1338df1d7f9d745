"""The container for processors, built without any image registry and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.places import REPOSITORY

pytestmark = pytest.mark.long

IMAGE, BASE = "localhost/tandem-test", "localhost/tandem-test-base"
# Packages come from wherever pip gets them here.
PIP_SETTINGS, CERTIFICATES = Path("/etc/pip.conf"), Path("/etc/ssl/certs/ca-certificates.crt")


def call(*command: str | Path) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """podman with the image in a store of its own, which goes with the test."""
    programs = ("podman", "buildah", "debootstrap", "runc")
    if missing := [name for name in programs if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]:
        pytest.skip(f"{', '.join(missing)} missing: install {' '.join(programs)}")
    if os.geteuid():
        pytest.skip("debootstrap needs root")
    place = tmp_path_factory.mktemp("container")
    store = ["--root", str(place / "store"), "--runroot", str(place / "state")]
    call("debootstrap", "--variant=minbase", "bookworm", place / "base")
    take_pip_settings(place / "base")
    call("tar", "-C", place / "base", "-cf", place / "base.tar", ".")
    call("podman", *store, "import", place / "base.tar", BASE)
    call("buildah", *store, "bud", "--isolation", "chroot", "--network", "host", *build_options(), str(REPOSITORY))
    yield ["podman", *store]
    call("podman", *store, "system", "reset", "--force")


def take_pip_settings(base: Path) -> None:
    """Let pip in the image work as it does here; the certificates under another name, because the image has its own."""
    if PIP_SETTINGS.is_file() and CERTIFICATES.is_file():
        shutil.copy(CERTIFICATES, base / "etc/certificates-of-the-host.crt")
        settings = PIP_SETTINGS.read_text().replace(str(CERTIFICATES), "/etc/certificates-of-the-host.crt")
        (base / "etc/pip.conf").write_text(settings)


def build_options() -> Sequence[str]:
    options = ["--build-arg", f"BASE={BASE}", "--file", str(REPOSITORY / "deploy" / "Containerfile"), "--tag", IMAGE]
    if wheels := os.environ.get("PIP_FIND_LINKS"):
        options += ["--build-arg", f"TORCH=--no-index --find-links {wheels}", "--volume", f"{wheels}:{wheels}:ro"]
    return options


def test_a_container_trains_where_its_volume_keeps_the_run(podman: list[str], tmp_path: Path) -> None:
    # Limits as low as a machine may have them, which podman does not raise by itself.
    limits = ["--runtime", "runc", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
    run = [*podman, "run", "--rm", *limits, "--network", "none", "--volume", f"{tmp_path}:/work", IMAGE]
    # It needs no network, once it is built.
    assert "test BLEU" in call(*run, "demo", "--dir", "demo")
    assert (tmp_path / "demo" / "run" / "best").is_dir()
