"""The key of an artifact: stage name, version, config and input keys go in, 20 hex digits come out."""

import hashlib
import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel

KEY_DIGITS = 20


def fingerprint(name: str, version: int, config: Any, input_keys: Mapping[str, str]) -> str:
    """The same in every process and Python version: sha256 over canonical JSON."""
    identity = {
        "stage": name,
        "version": version,
        "config": canonical(config),
        "inputs": canonical(dict(input_keys), "inputs"),
    }
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def canonical(value: Any, where: str = "config") -> Any:
    """Plain JSON values only; anything whose text could differ between two runs is refused by name.

    Keep sets out of settings models: pydantic dumps them as lists in an order that changes from run to run.
    """
    match value:
        case BaseModel():
            return canonical(value.model_dump(mode="json"), where)
        case Enum():
            return canonical(value.value, where)
        case None | bool():
            return value
        case str():
            return str(value)
        case int():
            return int(value)
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{where}={value}: a key is made of finite numbers; use one, or None")
            return float(value)  # json writes a float by its repr
        case Mapping():
            if odd := [key for key in value if not isinstance(key, str)]:
                raise ValueError(f"{where}: {odd[0]!r} is not text, and JSON keys are; use {str(odd[0])!r}")
            return {key: canonical(item, f"{where}.{key}") for key, item in value.items()}
        case list() | tuple():
            return [canonical(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise ValueError(
        f"{where}={value!r}: a {type(value).__name__} has no canonical text; "
        "use numbers, text, lists, dicts with text keys or settings models"
    )
