"""Text as it may be shown: addresses that may hold passwords go in, the same addresses without them come out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Up to the last @ before the path; or up to the first @ of all, as keys of S3 have slashes: then not after a port.
_PASSWORD = re.compile(r"""(://[^\s/?#:@"']*):(?:[^\s/?#"']*@|(?!\d+(?:[/?#\s"']|$))[^\s"'@]*@)""")
_NAMES = "secret|passw|pwd|token|sig|credential|key"  # as in ?secret_key=, ?sig= (Azure), ?password= (PostgreSQL)
_PARAMETER = re.compile(rf"""([?&][^\s=&?"']*(?:{_NAMES})[^\s=&"']*=)[^\s&#"']*""", re.IGNORECASE)


def without_password(text: str) -> str:
    """`https://me:***@host?sig=***`, wherever in the text an address stands."""
    if "://" not in text:
        return text
    return _PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


def masked(value: Any) -> Any:
    """Settings as they may be written down: every text in them without its passwords."""
    if isinstance(value, str):
        return without_password(value)
    if isinstance(value, Mapping):
        return {name: masked(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(masked(one) for one in value)
    return value
