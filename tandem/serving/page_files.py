"""The web page of the server: its files as they are, with headers that forbid it everything but this server."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, HTTPException
from fastapi.responses import FileResponse

PAGE = Path(__file__).parent / "page"
MEDIA_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
# No script and no style in the page itself, nothing from elsewhere: text that looks like HTML stays text.
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

page_routes = APIRouter(include_in_schema=False)


@page_routes.get("/")
def page() -> FileResponse:
    """The page."""
    return _file(PAGE / "index.html")


@page_routes.get("/static/{name}")
def page_file(name: str) -> FileResponse:
    """Style, script or icon of the page."""
    # Only names that are in the folder: nothing of a request becomes part of a path.
    known = {path.name: path for path in PAGE.iterdir() if path.suffix in MEDIA_TYPES}
    if name not in known:
        raise HTTPException(404, f"the page has no file {name}")
    return _file(known[name])


def _file(path: Path) -> FileResponse:
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers=HEADERS)
