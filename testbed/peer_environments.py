"""Virtual environments with programs that read what Tandem writes, each in its own, outside of the repository.

    python -m testbed.peer_environments            make all that tests need and are not there yet
    python -m testbed.peer_environments argos      make one

They lie in ~/.cache/tandem-test-environments, or where TANDEM_TEST_ENVIRONMENTS says. Tests that need one skip without
it. An environment is known by a digest of its packages: changed packages make a new one.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PLACE = "TANDEM_TEST_ENVIRONMENTS"
READY = ".ready"
# Any other version may come with several GB of libraries for cards.
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class PeerEnvironment:
    """A program, and the packages that it runs with."""

    name: str
    packages: tuple[str, ...]
    without_dependencies: tuple[str, ...] = ()
    """Installed by themselves, because they ask for more than they use."""
    for_tests: bool = True
    """Whether `make test` needs it; others are made when they are asked for: by a bench, or by `make test-long`."""

    @property
    def directory(self) -> Path:
        packages = "\n".join([*self.packages, *self.without_dependencies])
        digest = hashlib.sha256(packages.encode()).hexdigest()[:8]
        return places() / f"{self.name}-{digest}"

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def is_ready(self) -> bool:
        return (self.directory / READY).is_file()

    def make(self) -> None:
        """Install everything; what a stopped attempt left is made anew."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", self.directory], check=True)
        install: list[str | Path] = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *self.packages], check=True)
        if self.without_dependencies:
            subprocess.run([*install, "--no-deps", *self.without_dependencies], check=True)
        (self.directory / READY).touch()


# Stanza is imported by Argos Translate, though not used with a package that brings its own sentence splitter; spaCy,
# which Argos Translate asks for too, is not even imported.
ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        PeerEnvironment("transformers-4", ("transformers==4.57.6", TORCH, "ctranslate2==4.8.4"), for_tests=False),
        # accelerate is what its trainer runs on, for bench/peers.py.
        PeerEnvironment("transformers-5", ("transformers==5.23.0", TORCH, "ctranslate2==4.8.4", "accelerate==1.15.0")),
        PeerEnvironment(
            "argos",
            (
                *("ctranslate2==4.8.4", "minisbd==0.9.5", "packaging", "sacremoses==0.1.1", "sentencepiece==0.2.2"),
                *(TORCH, "emoji", "networkx", "numpy", "protobuf", "requests", "tqdm"),
            ),
            ("argostranslate==1.11.0", "stanza==1.10.1"),
        ),
        PeerEnvironment("libretranslate", ("libretranslate==1.9.6",), for_tests=False),
        # eole asks for much more, for audio, scoring and serving; its decoder and its trainer need this.
        PeerEnvironment(
            "eole",
            (
                *(TORCH, "huggingface_hub==2.4.0", "numpy==2.4.6", "pydantic==2.14.3", "pyonmttok==1.38.1"),
                *("PyYAML==6.0.3", "regex", "sacrebleu==2.6.0", "safetensors==0.8.0", "tokenizers==0.23.3", "tqdm"),
            ),
            ("eole==0.6.4",),
            for_tests=False,
        ),
        # These read the files of deploy/. SkyPilot alone is half a GB: `make test-long` asks for both.
        PeerEnvironment("skypilot", ("skypilot==0.14.1",), for_tests=False),
        PeerEnvironment("kubeflow", ("kubeflow-trainer-api==2.3.0", "PyYAML==6.0.3"), for_tests=False),
    )
}


def places() -> Path:
    """The directory that the environments lie in."""
    return Path(os.environ.get(PLACE) or Path.home() / ".cache" / "tandem-test-environments")


def why_missing(name: str) -> str | None:
    """A reason to skip what needs an environment, with the command that makes it; None if it is there."""
    if ENVIRONMENTS[name].is_ready():
        return None
    return f"the environment {name} is not there; make it with: python -m testbed.peer_environments {name}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ENVIRONMENTS))
    asked = arguments.parse_args().names
    for name in asked or [environment.name for environment in ENVIRONMENTS.values() if environment.for_tests]:
        if name not in ENVIRONMENTS:
            arguments.error(f"{name}: choose from {', '.join(ENVIRONMENTS)}")
        environment = ENVIRONMENTS[name]
        if not environment.is_ready():
            print(f"making {environment.directory}", flush=True)
            environment.make()
        print(f"{name}: {environment.directory}")


if __name__ == "__main__":
    main()
