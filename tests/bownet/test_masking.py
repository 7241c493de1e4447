"""What may be shown of addresses: passwords of every form are masked, and nothing else is."""

import pytest

from bownet.filesystems import open_filesystem
from bownet.masking import masked, without_password
from pipelines.store import Folder, StoreError

SHOWN = {
    "https://me:secret@host/a": "https://me:***@host/a",
    "s3://me:secret@bucket/a?region=x": "s3://me:***@bucket/a?region=x",
    "s3://me:sec/ret+@bucket/a": "s3://me:***@bucket/a",  # keys of S3 have slashes
    "https://me:sec@ret@host/a@b": "https://me:***@host/a@b",
    "postgresql+psycopg2://me:p%40ss@host:5432/db": "postgresql+psycopg2://me:***@host:5432/db",
    "s3://bucket/a?access_key=me&secret_key=secret&region=x": "s3://bucket/a?access_key=***&secret_key=***&region=x",
    "abfs://box@account/a?sv=1&sig=secret%3D#x": "abfs://box@account/a?sv=1&sig=***#x",
    "no s3://me:secret@b/a, nor 's3://me:secret@c': mend it": "no s3://me:***@b/a, nor 's3://me:***@c': mend it",
    "http://127.0.0.1:5000/a@b": "http://127.0.0.1:5000/a@b",
    "http://127.0.0.1:5000 and me@host": "http://127.0.0.1:5000 and me@host",
    "sqlite:////tmp/a.db": "sqlite:////tmp/a.db",
    "http://[": "http://[",
    "a: b@c ?key=1": "a: b@c ?key=1",
}


@pytest.mark.parametrize("text", SHOWN)
def test_passwords_are_masked_and_nothing_else(text: str) -> None:
    assert without_password(text) == SHOWN[text]
    assert without_password(SHOWN[text]) == SHOWN[text]


def test_settings_are_masked_at_every_depth() -> None:
    settings = {"seed": 3, "data": {"path": "s3://me:secret@b"}, "weights": ["s3://me:secret@c", None], "drops": (4, 8)}
    shown = {"seed": 3, "data": {"path": "s3://me:***@b"}, "weights": ["s3://me:***@c", None], "drops": (4, 8)}
    assert masked(settings) == shown


def test_errors_show_no_password() -> None:
    with pytest.raises(ValueError, match=r"^none://me:\*\*\*@bucket: neither") as refused:
        open_filesystem("none://me:secret@bucket")
    assert "secret" not in str(refused.value)
    with pytest.raises(StoreError, match=r"^store=none://me:\*\*\*@bucket: neither"):
        Folder("none://me:secret@bucket").read_bytes("a")
    assert str(StoreError("s3://me:secret@bucket/a: gone")) == "s3://me:***@bucket/a: gone"
