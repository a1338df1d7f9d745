"""Data is never run: nothing in the package unpickles, evaluates or shells out to what a file or a user's text says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.errors import TandemError
from tandem.yaml_files import read_yaml
from tests.places import REPOSITORY

PACKAGE = REPOSITORY / "tandem"
# Modules whose readers run what they read. Worker processes of `tandem prepare` send each other pickles, made and read
# by the standard library inside one program; none lies in a file or comes from the network.
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle"}
# Calls that run text or unpickle; those of torch unless weights_only is on.
UNSAFE_CALLS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.getoutput", "runpy.run_path"),
    *("torch.load", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter", "np.lib.format.read_array"),
    *("yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "yaml.Loader", "yaml.UnsafeLoader", "yaml.FullLoader"),
    *("dist.all_gather_object", "dist.broadcast_object_list", "dist.gather_object", "dist.scatter_object_list"),
    *("dist.recv_object_list", "dist.send_object_list", "tarfile.extractall", "shutil.unpack_archive"),
}
UNSAFE_METHODS = {"extractall", "unpack_archive", *(name.split(".")[1] for name in UNSAFE_CALLS if "dist." in name)}


def dotted(node: ast.expr) -> str:
    """`torch.load` from its tree; the last part alone where the first is not a name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def faults(tree: ast.Module) -> Iterator[str]:
    safe_loaders = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "yaml.SafeLoader" in map(dotted, node.bases)
    }
    safe_loaders.add("yaml.SafeLoader")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
            yield from (f"imports {name}" for name in named if name.split(".")[0] in UNSAFE_MODULES)
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            if name == "torch.load" and ast.unparse(keywords.get("weights_only", node.func)) == "True":
                continue
            if name in UNSAFE_CALLS or name.rpartition(".")[2] in UNSAFE_METHODS:
                yield f"calls {name}"
            if name == "yaml.load" and dotted(keywords.get("Loader", node.func)) not in {
                *safe_loaders,
                "yaml.SafeLoader",
            }:
                yield "calls yaml.load without a safe loader"
            yield from (
                f"calls {name} with {word}"
                for word in ("allow_pickle", "shell", "trust_remote_code")
                if word in keywords and ast.unparse(keywords[word]) != "False"
            )


def test_nothing_in_the_package_runs_data() -> None:
    found = [
        f"{path.relative_to(REPOSITORY)} {fault}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for fault in faults(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import load",
        "import torch\ntorch.load(path)",
        "torch.load(path, weights_only=False)",
        "eval(text)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(command, shell=True)",
        "archive.extractall(place)",
        "dist.all_gather_object(found, mine)",
    ],
)
def test_the_look_finds_what_it_looks_for(code: str) -> None:
    assert len(list(faults(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "text", ["!!python/object/apply:os.system ['touch {}']", "train: !!python/name:os.system", "!!python/module:this"]
)
def test_settings_are_read_and_never_run(tmp_path: Path, text: str) -> None:
    settings, planted = tmp_path / "settings.yaml", tmp_path / "planted"
    settings.write_text(text.format(planted))
    with pytest.raises(TandemError, match="not YAML"):
        read_yaml(settings)
    assert not planted.exists()
