"""The files of the web page: index.html, style, scripts and icons, as they are on disk."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PAGE = Path(__file__).parent.parent / "page"
# A browser asks each time whether a file is still the same: after an update it must not mix old scripts with new ones.
_FILE_HEADERS = {"cache-control": "no-cache", "x-content-type-options": "nosniff"}
# The page has no script and no style within it and needs nothing from elsewhere; nobody may frame it.
PAGE_HEADERS = _FILE_HEADERS | {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "referrer-policy": "no-referrer",
}


class PageFiles(StaticFiles):
    """Everything that the page loads."""

    def __init__(self) -> None:
        super().__init__(directory=PAGE)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, or that it has not changed."""
        response = await super().get_response(path, scope)
        response.headers.update(_FILE_HEADERS)
        return response


def index_page() -> Response:
    """The page itself."""
    return FileResponse(PAGE / "index.html", headers=PAGE_HEADERS)
