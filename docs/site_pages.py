"""Pages of the site that are made, not written: a page for each module from its docstrings, and those of the root.

Links in the Markdown files are those that work in a checkout: `../tandem/corpus/shards.py` leads to the source. On the
site they lead to the module's page, `../README.md` to the start.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tandem"
# Pages of the site that lie above docs/ in the checkout.
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
# Warnings of MkDocs' own loggers fail a strict build.
LOG = logging.getLogger("mkdocs.site_pages")
# Pictures of the README, in HTML: they lie below docs/, as the site's pages do.
PICTURE = re.compile(r'(?<=src=")docs/(?=images/)|(?<=srcset=")docs/(?=images/)')
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is made."""
    modules = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__main__.py")
    for path in modules:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        files.append(File.generated(config, page_of(path), content=f"# {name}\n\n::: {name}\n"))
    for source, target in ROOT_PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "modules.md", content=index_of(modules)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links into the checkout into links of the site."""
    here = "" if page.file.src_uri in ROOT_PAGES.values() else "docs"

    def on_site(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(here, target))
        if not (ROOT / path).exists():
            LOG.warning("%s: the link to %s leads nowhere", page.file.src_uri, target)
        if path in ROOT_PAGES:
            path = ROOT_PAGES[path]
        elif path.startswith("tandem/"):
            source = ROOT / path
            path = page_of(source if source.suffix else source / "__init__.py")
        elif path.startswith("docs/"):
            path = path.removeprefix("docs/")
        else:
            return text  # tests, benches and the like are in the checkout only
        return f"[{text}]({posixpath.relpath(path, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    return LINK.sub(on_site, PICTURE.sub("", markdown) if page.file.src_uri == "index.md" else markdown)


def page_of(path: Path) -> str:
    """Where the page of a module lies on the site."""
    return f"modules/{path.relative_to(ROOT).with_suffix('').as_posix()}.md"


def index_of(modules: list[Path]) -> str:
    """The folders and modules of the package, each with the first sentence of its docstring."""
    lines = ["# Modules", ""]
    for path in modules:
        sentence = path.read_text(encoding="utf-8").removeprefix('"""').partition('"""')[0].partition("\n")[0]
        place = path.relative_to(ROOT)
        depth = len(place.parts) - (3 if path.name == "__init__.py" else 2)
        name = f"{place.parent.as_posix()}/" if path.name == "__init__.py" else path.name
        lines.append(f"{'    ' * max(depth, 0)}- [{name}]({page_of(path)}): {sentence}")
    return "\n".join(lines) + "\n"
