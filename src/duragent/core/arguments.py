"""The arguments of a call against its tool's JSON Schema, told in words that a model can act on.

A schema that cannot be used checks nothing: the tool sees the arguments as they are. Nothing is fetched: a schema
that points elsewhere is one that cannot be used, and patterns in it are matched in linear time.
"""

import json
from collections.abc import Mapping
from typing import Any

from jsonschema_rs import RegexOptions, ValidationError, validator_for

from duragent.agent import Json

MOST = 20
LONGEST = 2_000


class Checked:
    """One schema, compiled."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self.schema = schema
        try:
            self.validator: Any = validator_for(
                dict(schema), pattern_options=RegexOptions(), retriever=_nothing, validate_formats=False
            )
        except (ValueError, TypeError, RecursionError, OverflowError):  # its author's mistake, and not the model's
            self.validator = None

    def faults(self, arguments: Json) -> str:
        """Everything that is wrong, one line each; "" where nothing is."""
        if self.validator is None or self.validator.is_valid(arguments):
            return ""
        found, more = list[str](), 0
        for error in self.validator.iter_errors(arguments):
            if len(found) < MOST:
                found.append(f"- {_where(error)}: {_what(error)}")
            else:
                more += 1
        text = "\n".join(dict.fromkeys(found))
        if len(text) > LONGEST:
            text = text[: LONGEST - 1].rsplit("\n", 1)[0][: LONGEST - 1] + "\n- …"
        return f"{text}\n- and {more} more" if more else text


def _nothing(uri: str) -> Json:
    raise ValueError(f"{uri} is not fetched")


def _where(error: ValidationError) -> str:
    path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.instance_path)
    return path.lstrip(".") or "arguments"


def _what(error: ValidationError) -> str:
    message = " ".join(error.message.split())
    options = getattr(error.kind, "options", None)  # of an enum: all of them, since the model must choose one
    if isinstance(options, list):
        shown = ", ".join(json.dumps(each, ensure_ascii=False) for each in options)
        message = f"{json.dumps(error.instance, ensure_ascii=False)[:60]} is none of {shown}"
    return message if len(message) <= 300 else f"{message[:299]}…"
