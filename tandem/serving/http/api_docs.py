"""The API's description: bodies for the OpenAPI schema, and a page that needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pydantic import BaseModel

from tandem.serving.http.libretranslate_api import TEXT_SCHEMA

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { background: color-mix(in srgb, currentColor 10%, transparent); padding: 0 .3em; border-radius: .2em; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; }
:root { color-scheme: light dark; }
"""


def describe_body(
    model: type[BaseModel], enums: Mapping[str, Sequence[str]] | None = None, *, form: bool = False, file: bool = False
) -> dict[str, Any]:
    """The request body of a route that parses it itself; `enums` are the values that a field may have here."""
    schema = model.model_json_schema()
    schema["properties"].pop("secret", None)
    for name, values in (enums or {}).items():
        schema["properties"][name]["enum"] = list(values)
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if form:
        fields = {name: {"type": "string", **field} for name, field in schema["properties"].items()}
        if "q" in fields:
            fields["q"] = TEXT_SCHEMA
        content["application/x-www-form-urlencoded"] = {"schema": {**schema, "properties": fields}}
    if file:
        schema["properties"]["file"] = {"type": "string", "format": "binary"}
        schema["required"] = [*schema.get("required", ()), "file"]
        content = {"multipart/form-data": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def docs_page(schema: Mapping[str, Any]) -> str:
    """The OpenAPI schema as a page for people."""
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(schema['info']['title'])} API</title>"]
    parts += ["<meta name=viewport content='width=device-width'><link rel=stylesheet href=/docs.css>"]
    parts += [f"<main><h1>{escape(schema['info']['title'])} API</h1><p>{escape(schema['info'].get('summary', ''))}"]
    parts += [
        "<p>The schema: <a href=/openapi.json>openapi.json</a>. Errors are <code>{&quot;error&quot;: ...}</code>."
    ]
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            parts += [f"<h2><code>{method.upper()} {escape(path)}</code></h2>"]
            parts += [f"<p>{escape(route.get('description', route.get('summary', '')))}", *_fields(route)]
    return "\n".join([*parts, "</main></html>"])


def docs_style() -> str:
    """The style of that page."""
    return _STYLE


def _fields(route: Mapping[str, Any]) -> list[str]:
    content = route.get("requestBody", {}).get("content", {})
    if not content:
        return []
    schema = next(iter(content.values()))["schema"]
    lines = [f"<p>Body: {', '.join(f'<code>{escape(kind)}</code>' for kind in content)}", "<table>"]
    for name, field in schema["properties"].items():
        must = "" if name in schema.get("required", ()) else "optional"
        values = ", ".join(map(str, field.get("enum", ())))
        about = f"{field.get('description', '')} {values and f'({values})'}"
        lines.append(f"<tr><td><code>{escape(name)}</code><td>{must}<td>{escape(about)}")
    return [*lines, "</table>"]
