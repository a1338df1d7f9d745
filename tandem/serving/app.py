"""The routes of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

import tandem
from tandem.serving.http.api_docs import describe_body, docs_page, docs_style
from tandem.serving.http.libretranslate_api import (
    AlignAnswer,
    AlignRequest,
    ApiError,
    ApiRequest,
    DetectedAnswer,
    DetectRequest,
    ErrorAnswer,
    FileRequest,
    LanguageAnswer,
    StreamRequest,
    TranslateAnswer,
    TranslateRequest,
    parse_file_request,
    parse_request,
)
from tandem.serving.http.page_files import PAGE_HEADERS, PageFiles, index_page
from tandem.serving.http.request_gate import SERVER_ERROR, RequestGate
from tandem.serving.http.translated_files import FORMATS, TranslatedFiles
from tandem.serving.translation_service import TranslationService

_REFUSALS = {400: "The request is wrong.", 403: "The key is wrong.", 408: "The body came too slowly."} | {
    413: "The request is too long.",
    429: "Too many requests.",
    503: "Too much to do.",
    504: "Not done in time.",
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": description} for status, description in _REFUSALS.items()
}


def create_app(service: TranslationService) -> RequestGate:
    """The whole app: routes behind the gate, open to pages of any origin as LibreTranslate is."""
    app = FastAPI(
        title="Tandem",
        version=tandem.__version__,
        summary="Machine translation; the API is compatible with LibreTranslate's.",
        docs_url=None,
        redoc_url=None,
    )
    app.add_exception_handler(ApiError, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _failed)
    _add_translation(app, service)
    _add_files(app, service)
    _add_facts(app, service)
    _add_page(app)
    paths = {getattr(route, "path", "") for route in app.routes}
    app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["GET", "POST"], allow_headers=["*"])
    return RequestGate(app, service.settings, service.metrics, paths)


def _add_translation(app: FastAPI, service: TranslationService) -> None:
    codes = {
        "source": [*service.models.sources(), "auto"],
        "target": sorted({pair[1] for pair in service.models.pairs}),
    }
    named = {**codes, "source": service.models.sources()}

    @app.post(
        "/translate",
        response_model=TranslateAnswer,
        responses=_ERRORS,
        openapi_extra=describe_body(TranslateRequest, codes, form=True),
    )
    async def translate(request: Request) -> Response:
        """Translate a text, or a list of texts."""
        asked = await parse_request(request, TranslateRequest)
        _admit(service, request, asked)
        return JSONResponse(await service.translate(asked))

    @app.post(
        "/translate/stream",
        response_class=StreamingResponse,
        responses=_ERRORS | {200: {"content": {"application/x-ndjson": {}}, "description": "A line a sentence."}},
        openapi_extra=describe_body(StreamRequest, codes),
    )
    async def stream(request: Request) -> Response:
        """Translate a text sentence by sentence: one JSON object a line, each as soon as it is done."""
        asked = await parse_request(request, StreamRequest)
        _admit(service, request, asked)
        return StreamingResponse(service.begin_stream(asked), media_type="application/x-ndjson")

    @app.post("/align", response_model=AlignAnswer, responses=_ERRORS, openapi_extra=describe_body(AlignRequest, named))
    async def align(request: Request) -> Response:
        """Tell which words of a sentence and its translation belong together, by the decoder's attention."""
        asked = await parse_request(request, AlignRequest)
        _admit(service, request, asked)
        return JSONResponse(await service.align(asked))

    @app.post(
        "/detect",
        response_model=list[DetectedAnswer],
        responses=_ERRORS,
        openapi_extra=describe_body(DetectRequest, form=True),
    )
    async def detect(request: Request) -> Response:
        """Tell the language of a text, among those that are translated from."""
        asked = await parse_request(request, DetectRequest)
        _admit(service, request, asked)
        return JSONResponse(service.detect(asked))


def _add_files(app: FastAPI, service: TranslationService) -> None:
    files = TranslatedFiles()

    @app.post("/translate_file", responses=_ERRORS, openapi_extra=describe_body(FileRequest, file=True))
    async def translate_file(request: Request) -> Response:
        """Translate a text or HTML file in UTF-8; the answer says where it can be fetched for ten minutes."""
        asked, file = await parse_file_request(request)
        _admit(service, request, asked)
        suffix = Path(file.filename or "").suffix.lower()
        if suffix not in FORMATS:
            raise ApiError(400, f"file: its name must end in {', '.join(FORMATS)}")
        try:
            text = (await file.read()).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ApiError(400, "file: not UTF-8; convert it, for example with iconv") from None
        if "\0" in text:
            raise ApiError(400, "file: has a null character; send a text file")
        model = service.model_for(text, asked.source, asked.target)
        translated = await service.translate_text(text, model, "text" if suffix == ".txt" else "html")
        key = files.add(file.filename or "", suffix, translated.text.encode())
        return JSONResponse({"translatedFileUrl": f"{request.base_url}download_file/{key}"})

    @app.get("/download_file/{key}", responses={404: {"model": ErrorAnswer}}, response_class=Response)
    async def download_file(key: str) -> Response:
        """Fetch a translated file."""
        found = files.get(key)
        if found is None:
            raise ApiError(404, "no such file, or no longer kept; translate it again")
        headers = {"content-disposition": f'attachment; filename="{found.name.encode("ascii", "replace").decode()}"'}
        return Response(found.content, media_type=found.kind, headers=headers | {"x-content-type-options": "nosniff"})


def _add_facts(app: FastAPI, service: TranslationService) -> None:
    @app.get("/languages", response_model=list[LanguageAnswer])
    async def languages() -> Response:
        """List the languages, and what each is translated into."""
        return JSONResponse(service.models.languages())

    @app.get("/health")
    async def health() -> Response:
        """Tell that the server is up."""
        return JSONResponse({"status": "ok"})

    @app.get("/frontend/settings")
    async def frontend_settings() -> Response:
        """Tell clients what the server has and allows."""
        return JSONResponse(service.frontend_settings())

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/spec", include_in_schema=False)
    async def spec() -> Response:
        # Clients such as Dialect look here, by this title, whether a server speaks LibreTranslate's API.
        schema = app.openapi()
        return JSONResponse({**schema, "info": {**schema["info"], "title": "LibreTranslate"}})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(docs_page(app.openapi()), media_type="text/html", headers=PAGE_HEADERS)

    @app.get("/docs.css", include_in_schema=False)
    async def style() -> Response:
        return Response(docs_style(), media_type="text/css")


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return index_page()

    app.mount("/static", PageFiles(), name="static")


def _admit(service: TranslationService, request: Request, asked: ApiRequest) -> None:
    service.admit(asked, request.client.host if request.client else "")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse({"error": error.message}, error.status, error.headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """Errors of the framework: no such path, or not by this method."""
    assert isinstance(error, HTTPException)
    known = {404: "no such path; /docs lists them", 405: f"not by {request.method}; /docs lists the methods"}
    return JSONResponse({"error": known.get(error.status_code, str(error.detail))}, error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    """A fault of ours, which the gate logs."""
    return JSONResponse({"error": SERVER_ERROR}, 500)
