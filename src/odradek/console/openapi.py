"""OpenAPI 3.1 from the table of routes: what describes the interface is what serves it."""

import types
import typing
from collections.abc import Iterable
from typing import Any

from odradek import __version__
from odradek.console.routes import Route

_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


def schema_of(shape: Any, known: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema; TypedDicts are named once in `known`, and referred to."""
    if shape in _SIMPLE:
        return _SIMPLE[shape]
    origin, arguments = typing.get_origin(shape), typing.get_args(shape)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(each, known) for each in arguments]}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0], known)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], known)}
    name = shape.__name__
    if name not in known:
        known[name] = {}
        hints = typing.get_type_hints(shape)
        known[name].update(
            {
                "type": "object",
                "properties": {key: schema_of(hint, known) for key, hint in hints.items()},
                "required": sorted(shape.__required_keys__),
            }
        )
    return {"$ref": f"#/components/schemas/{name}"}


def describe(routes: Iterable[Route], prefix: str) -> dict[str, Any]:
    known: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in routes:
        parameters = [
            {
                "name": name,
                "in": "query",
                "description": about,
                "required": required,
                "schema": {"type": "string"},
            }
            for name, about, required in route.parameters
        ]
        if "{id}" in route.path:
            parameters.append(
                {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
            )
        content: dict[str, Any] = {}
        if route.answer is not None:
            content = {"application/json": {"schema": schema_of(route.answer, known)}}
        operation: dict[str, Any] = {
            "summary": route.summary,
            "parameters": parameters,
            "x-right": route.right.value,
            "responses": {
                "200": {"description": "the answer", "content": content},
                "default": {
                    "description": "what is wrong",
                    "content": {"application/problem+json": {"schema": {"type": "object"}}},
                },
            },
        }
        if route.method == "POST":
            operation["requestBody"] = {
                "content": {"application/json": {"schema": {"type": "object"}}}
            }
        paths.setdefault(prefix + route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Odradek console", "version": __version__},
        "paths": paths,
        "components": {"schemas": known},
    }
