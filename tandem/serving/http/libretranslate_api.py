"""Requests and answers of the API, which is compatible with LibreTranslate's: fields, bodies, errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

MOST_ALTERNATIVES = 20
MOST_FIELDS = 50
# Half of a pair of code units, or nothing at all: no text that can be stored or sent on.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
# A text that is not empty in the schema, by the same rule.
TEXT_SCHEMA = {"type": "string", "minLength": 1, "pattern": r"^[^\u0000]+$"}


class ApiError(Exception):
    """A request that is refused, with the status and the sentence of the answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


def _text(value: str) -> str:
    if found := _NO_TEXT.search(value):
        what = "a null character" if found[0] == "\0" else "half of a surrogate pair"
        raise ValueError(f"has {what} at character {found.start() + 1}; send Unicode text")
    return value


def _texts(value: Any) -> str | list[str]:
    """One text or a list of them, with one error where pydantic would give one for each type."""
    if not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise ValueError("must be a text or a list of texts")
    if not value:
        raise ValueError("is empty; send the text to translate")
    for text in [value] if isinstance(value, str) else value:
        _text(text)
    return value


def _one_text(value: str) -> str:
    if not value:
        raise ValueError("is empty; send a text")
    return _text(value)


Texts = Annotated[
    str | list[str],
    PlainValidator(_texts),
    WithJsonSchema(
        {"anyOf": [TEXT_SCHEMA, {"type": "array", "items": {**TEXT_SCHEMA, "minLength": 0}, "minItems": 1}]}
    ),
]
OneText = Annotated[str, AfterValidator(_one_text), WithJsonSchema(TEXT_SCHEMA)]
LanguageCode = Annotated[str, AfterValidator(_text)]


class ApiRequest(BaseModel):
    """Fields that every request has."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    api_key: str | None = None
    """The API key, where the server asks for one."""
    secret: str | None = Field(default=None, exclude=True)
    """Sent by LibreTranslate's own page; not looked at."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """An optional field that is null or empty is as good as absent: many clients send all that there are."""
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {
            name: value for name, value in fields.items() if name not in optional or (value is not None and value != "")
        }


class TranslateRequest(ApiRequest):
    """A text or several to translate."""

    q: Texts
    """The text, or in JSON a list of texts."""
    source: LanguageCode
    """Code of the language it is in, or `auto`."""
    target: LanguageCode
    """Code of the language to translate into."""
    format: Literal["text", "html"] = "text"
    """`html` keeps tags, attributes, entities and comments."""
    alternatives: int = Field(default=0, ge=0, le=MOST_ALTERNATIVES)
    """How many other translations to add, at most."""


class StreamRequest(ApiRequest):
    """A text to translate sentence by sentence."""

    q: OneText
    """The text."""
    source: LanguageCode
    """Code of the language it is in, or `auto`."""
    target: LanguageCode
    """Code of the language to translate into."""


class AlignRequest(ApiRequest):
    """A sentence and its translation."""

    q: OneText
    """The sentence."""
    translation: OneText
    """Its translation."""
    source: LanguageCode
    """Code of the sentence's language."""
    target: LanguageCode
    """Code of the translation's language."""


class DetectRequest(ApiRequest):
    """A text whose language is asked for."""

    q: OneText
    """The text."""


class FileRequest(ApiRequest):
    """Languages of a file to translate."""

    source: LanguageCode
    """Code of the language it is in, or `auto`."""
    target: LanguageCode
    """Code of the language to translate into."""


class ErrorAnswer(BaseModel):
    """Why a request was refused."""

    error: str


class DetectedAnswer(BaseModel):
    """A language and how sure it is, from 0 to 100."""

    confidence: float
    language: str


class TranslateAnswer(BaseModel):
    """The translation of a text, or in lists those of several."""

    translatedText: str | list[str]
    detectedLanguage: DetectedAnswer | list[DetectedAnswer] | None = None
    alternatives: list[str] | list[list[str]] | None = None


NumberPair = Annotated[list[int], Field(min_length=2, max_length=2)]


class AlignAnswer(BaseModel):
    """Words as ranges of UTF-16 code units, and the pairs that belong together."""

    source: list[NumberPair]
    target: list[NumberPair]
    links: list[NumberPair]


class LanguageAnswer(BaseModel):
    """A language and what it is translated into."""

    code: str
    name: str
    targets: list[str]


Parsed = TypeVar("Parsed", bound=ApiRequest)


async def parse_request(request: Request, model: type[Parsed]) -> Parsed:
    """The fields of a request: JSON, form or query."""
    fields, _ = await _fields(request)
    return _validated(fields, model)


async def parse_file_request(request: Request) -> tuple[FileRequest, UploadFile]:
    """The fields and the file of a multipart request."""
    fields, files = await _fields(request)
    if "file" not in files:
        raise ApiError(400, "file: missing; send it as multipart/form-data")
    return _validated(fields, FileRequest), files["file"]


def _validated(fields: dict[str, Any], model: type[Parsed]) -> Parsed:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise ApiError(400, _explain(error, model)) from None


async def _fields(request: Request) -> tuple[dict[str, Any], dict[str, UploadFile]]:
    fields: dict[str, Any] = dict(_pairs(request.scope["query_string"]))
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    files: dict[str, UploadFile] = {}
    if kind == "application/json" or kind.endswith("+json"):
        fields |= _json_object(await request.body())
    elif kind == "application/x-www-form-urlencoded":
        body = await request.body()
        if body.lstrip().startswith(b"{"):  # what curl -d sends when it is not told otherwise
            raise ApiError(400, "the body looks like JSON; say so with the header Content-Type: application/json")
        fields |= dict(_pairs(body))
    elif kind == "multipart/form-data":
        try:
            form = await request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=1 << 30)
        except (HTTPException, UnicodeDecodeError):
            raise ApiError(400, "the multipart body is damaged or has too many parts; send it again") from None
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                files[name] = value
            else:
                fields[name] = value
    elif await request.body():
        raise ApiError(400, "the body is of an unknown kind; send application/json or a form, and say which")
    return fields, files


def _pairs(content: bytes) -> list[tuple[str, str]]:
    try:
        # Decoded before it is taken apart: curl -d sends letters beyond ASCII as they are.
        return parse_qsl(content.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except UnicodeDecodeError:
        raise ApiError(400, "the form or query is not UTF-8; encode it as UTF-8") from None
    except ValueError:
        raise ApiError(400, f"more than {MOST_FIELDS} fields; send those of the API") from None


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except RecursionError:
        raise ApiError(400, "the JSON is nested too deeply; send an object with the fields of the API") from None
    except ValueError:
        raise ApiError(400, "the body is not valid JSON; send an object with the fields of the API") from None
    if not isinstance(content, dict):
        raise ApiError(400, "the JSON is not an object; send one with the fields of the API")
    return content


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    """One sentence for the first fault, which names the field and what it may be."""
    problem = error.errors(include_url=False, include_context=False)[0]
    field, kind = printable(str(problem["loc"][0])), problem["type"]
    known = ", ".join(name for name in model.model_fields if name != "secret")
    if kind == "extra_forbidden":
        return f"{field}: no field of this request; there is {known}"
    description = " ".join((model.model_fields[str(problem["loc"][0])].description or "").split())
    if kind == "missing":
        return f"{field}: missing; {description}"
    reason = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{field}: {reason}"


def printable(text: str, most: int = 40) -> str:
    """What a client sent, cut and without characters that no answer can hold."""
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text[:most])
    return shown + ("..." if len(text) > most else "")
