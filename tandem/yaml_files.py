"""YAML as Tandem reads it: settings, the catalog of corpora, the demo's words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tandem.errors import TandemError

Tree = dict[str, Any]

# More than all settings there are. A few lines of aliases of aliases stand for more values than any memory holds, and
# a line of brackets takes the parser minutes.
_MOST_VALUES, _DEEPEST = 10_000, 20


class _Loader(yaml.SafeLoader):
    """YAML that reads 1e-3 as the number everybody means by it, and takes keys as they are written, each once."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._values = 0
        """Values so far, those that aliases stand for included."""
        self._values_of: dict[str, int] = {}
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event, before = self.peek_event(), self._values  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) and event.anchor is not None and event.anchor in self.anchors:
            # What is not known yet is still open: it would hold itself.
            self._values += self._values_of.get(event.anchor, _MOST_VALUES)
        if self._values >= _MOST_VALUES or self._depth >= _DEEPEST:
            what = "too many values" if self._values >= _MOST_VALUES else "nested too deeply"
            raise yaml.composer.ComposerError(None, None, what, event.start_mark)
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        self._values += 1
        if event.anchor is not None:
            self._values_of[event.anchor] = self._values - before
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and isinstance(key, yaml.ScalarNode):
                key.tag = "tag:yaml.org,2002:str"  # or 5, on and ~ were no strings
                if key.value in names:
                    # Of two sections or settings with one name, YAML would silently drop the first.
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
                names.add(key.value)
        return super().construct_mapping(node, deep)


# YAML 1.1 takes on, off, yes and no for booleans; people mean the words.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"(true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def parse_yaml(text: str) -> Any:
    """The value that a text stands for; a YAMLError or ValueError if it is none."""
    try:
        return yaml.load(text, Loader=_Loader)
    except IndexError as error:  # of a number without digits, such as !!int
        raise ValueError("a number without digits") from error


def read_yaml(path: Path) -> Tree:
    """The settings in a YAML file; an empty one has none."""
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TandemError(f"{path}: cannot be read ({error})") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: the thirteenth month of a date
        where = getattr(error, "problem_mark", None)
        line = f"line {where.line + 1}: " if where else ""
        raise TandemError(f"{path}: {line}not YAML ({getattr(error, 'problem', error)})") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise TandemError(f"{path}: holds {type(tree).__name__}, not settings; write `section:` and `  key: value`")
    return tree
