"""Compiles device.cpp against the installed PyTorch and loads it into this process.

Nothing here imports torch: PyTorch asks who answers for CUDA while it is imported and keeps the answer for good, so
the library has to be loaded first.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("device.cpp")
BUILT = Path(__file__).with_name(".built")
"""The directory of compiled libraries, which ignores itself for git."""
COMPILERS = ("g++", "c++", "clang++")


class NoCompilerError(RuntimeError):
    """There is no C++ compiler on this machine, or it cannot compile against the installed PyTorch."""


def available() -> str | None:
    """None if the rehearsal device can be used here, else the sentence that says why not."""
    try:
        library_path()
    except NoCompilerError as error:
        return str(error)
    return None


@cache
def library_path() -> Path:
    """The compiled library, built now unless this source was built for this PyTorch before."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    path = BUILT / f"device-torch-{version('torch')}-{digest}.so"
    if not path.exists():
        _compile(path)
    return path


@cache
def library() -> ctypes.CDLL:
    """The compiled library, loaded once a process; torch must not have been imported yet."""
    if "torch" in sys.modules:
        raise ImportError("torch was imported before the rehearsal device: import rehearsal.device first.")
    return ctypes.CDLL(str(library_path()))


def compiler() -> str:
    """The C++ compiler: $CXX if that is set, else the first of the usual names that is installed."""
    names = (os.environ["CXX"],) if os.environ.get("CXX") else COMPILERS
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise NoCompilerError(f"The rehearsal device needs a C++ compiler and found none of: {', '.join(names)}.")
    return found


def _compile(path: Path) -> None:
    """Compile into a temporary file beside the target and rename it: several processes may build at once."""
    program, home = compiler(), _torch_home()
    BUILT.mkdir(exist_ok=True)
    (BUILT / ".gitignore").write_text("*\n")
    handle, temporary = tempfile.mkstemp(dir=BUILT, suffix=".so")
    os.close(handle)
    # -w: the warnings are about PyTorch's own headers.
    command = [program, "-std=c++20", "-w", "-shared", "-fPIC", str(SOURCE), "-o", temporary]
    command += [f"-I{home / 'include'}", f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{home / 'lib'}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        Path(temporary).unlink()
        last = (result.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise NoCompilerError(f"{program} cannot compile the rehearsal device for PyTorch {version('torch')}: {last}")
    os.replace(temporary, path)


def _torch_home() -> Path:
    """The directory of the installed torch package."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise NoCompilerError("The rehearsal device needs PyTorch and it is not installed.")
    return Path(spec.origin).parent
