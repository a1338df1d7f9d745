"""Rules that a reader relies on: rooms import in one direction, names occur once, docstrings say what a thing is."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import REPOSITORY

PACKAGE = REPOSITORY / "tandem"
# A room may import those before it; docs/architecture.md shows the same order. What stands together forms one room.
ROOMS = (
    ("errors", "ssh"),
    (
        "allocator",
        "kernel_cache",
        "layout",
        "storage",
        "units",
        "thresholds",
        "metrics",
        "vocabulary",
        "registry",
        "cards",
        "process_exit",
        "validation",
        "yaml_files",
    ),
    ("untrusted_folder",),
    ("process_signals",),
    ("config",),
    ("schedules",),
    ("corpus", "scoring"),
    ("model",),
    ("monitor",),
    ("cluster",),
    ("comet",),
    ("training",),
    ("translation",),
    ("exporting", "serving"),
    ("reporting",),
    ("comparing",),
    ("doctor",),
    ("demo",),
    ("cli",),
)
ORDER = {name: place for place, names in enumerate(ROOMS) for name in names}
# Beside the package: what tests and benches share may not know them.
BESIDE = {
    "rehearsal": (),
    "testbed": ("rehearsal",),
    "bench": ("rehearsal", "testbed"),
    "tests": ("rehearsal", "testbed"),
}


def modules(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(root.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    """Full names of the modules (or objects) that are imported, anywhere in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def room_of(name: str) -> str | None:
    """The room that something of the package belongs to; None for the package itself and for other packages."""
    package, _, rest = name.partition(".")
    room = rest.partition(".")[0]
    return room if package == "tandem" and room in ORDER else None


def test_every_module_belongs_to_a_room() -> None:
    found = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path, _ in modules(PACKAGE)}
    assert found - {"__init__", "__main__"} == set(ORDER)


def test_rooms_import_only_rooms_before_them() -> None:
    wrong = []
    for path, tree in modules(PACKAGE):
        here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in imported(tree) if here in ORDER else ():
            room = room_of(name)
            if room is not None and room != here and ORDER[room] >= ORDER[here]:
                wrong.append(f"{path.relative_to(REPOSITORY)} imports {name}")
    assert wrong == []


@pytest.mark.parametrize(("folder", "allowed"), BESIDE.items())
def test_what_lies_beside_the_package_keeps_its_order(folder: str, allowed: tuple[str, ...]) -> None:
    forbidden = set(BESIDE) - {folder, *allowed}
    wrong = [
        f"{path.relative_to(REPOSITORY)} imports {name}"
        for path, tree in modules(REPOSITORY / folder)
        for name in imported(tree)
        if name.partition(".")[0] in forbidden
    ]
    assert wrong == []


def test_the_package_knows_nothing_beside_it() -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)} imports {name}"
        for path, tree in modules(PACKAGE)
        for name in imported(tree)
        if name.partition(".")[0] in BESIDE
    ]
    assert wrong == []


def test_the_names_of_modules_and_classes_occur_once() -> None:
    places = defaultdict(list)
    for path, tree in modules(PACKAGE):
        if path.stem != "__init__":
            places[f"{path.stem}.py"].append(str(path.relative_to(PACKAGE)))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[f"class {node.name}"].append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def documented(tree: ast.Module) -> Iterator[ast.Constant]:
    """Docstrings: of the module, its classes and functions, and the strings below attributes."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def test_docstrings_begin_with_what_a_thing_is() -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)}:{text.lineno}: {str(text.value).splitlines()[0]}"
        for path, tree in modules(PACKAGE)
        for text in documented(tree)
        if str(text.value).startswith("Of ")
    ]
    assert wrong == []


def test_functions_and_files_stay_short() -> None:
    """Rule 10, with some room: functions of about 60 lines, files of about 500."""
    wrong = []
    for path, tree in modules(PACKAGE):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > 500:
            wrong.append(f"{path.relative_to(REPOSITORY)}: {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno > 70:
                wrong.append(
                    f"{path.relative_to(REPOSITORY)}: {node.name} of {(node.end_lineno or 0) - node.lineno} lines"
                )
    assert wrong == []
