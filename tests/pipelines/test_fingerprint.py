"""Keys of artifacts: the same forever, of values and not of spelling."""

from typing import Any

import pytest
from pydantic import BaseModel

from pipelines.store.fingerprint import fingerprint


class Size(BaseModel):
    words: int
    rates: tuple[float, ...] = (0.1, 1e-05)


def test_fingerprint_is_the_same_forever() -> None:
    config = {"size": Size(words=2048), "taps": ("conv4",), "on": True}
    assert fingerprint("vocabulary", 3, config, {"net": "ab12"}) == "53dab1576f7587b7a2de"


def test_fingerprint_sees_values_not_spelling() -> None:
    base = fingerprint("s", 1, {"a": 1, "b": (1, 2)}, {})
    assert base == fingerprint("s", 1, {"b": [1, 2], "a": 1}, {})
    spelt_out = {"words": 1, "rates": [0.1, 1e-5]}
    assert fingerprint("s", 1, Size(words=1), {}) == fingerprint("s", 1, spelt_out, {})
    others = [
        fingerprint("t", 1, {"a": 1, "b": (1, 2)}, {}),
        fingerprint("s", 2, {"a": 1, "b": (1, 2)}, {}),
        fingerprint("s", 1, {"a": 1, "b": (2, 1)}, {}),
        fingerprint("s", 1, {"a": 1.5, "b": (1, 2)}, {}),
        fingerprint("s", 1, {"a": "1", "b": (1, 2)}, {}),
        fingerprint("s", 1, {"a": 1, "b": (1, 2)}, {"net": "x"}),
        fingerprint("s", 1, {"a": 1, "b": (1, 2)}, {"words": "x"}),
    ]
    assert len({base, *others}) == 1 + len(others)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"rate": float("nan")}, "config.rate=nan"),
        ({"rates": [1.0, float("inf")]}, r"config.rates\[1\]=inf"),
        ({"net": {1: "a"}}, "config.net: 1 is not text"),
        ({"taps": {"conv4"}}, "config.taps={'conv4'}: a set"),
        (Size(words=1, rates=(float("nan"),)), r"config.rates\[0\]=nan"),
    ],
)
def test_fingerprint_refuses_by_name(config: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fingerprint("s", 1, config, {})
