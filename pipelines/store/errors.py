"""The store's error: what the operating system or a remote store says, as one line with a remedy."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from safetensors import SafetensorError

from bownet.masking import without_password

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class StoreError(ValueError):
    """One line that names the path or the key, what is wrong with it, and what to do; without passwords."""

    def __init__(self, text: str) -> None:
        super().__init__(without_password(text))


@contextmanager
def explained(action: str, path: str) -> Iterator[None]:
    """Turn what the operating system or a remote store says into one line with a remedy."""
    try:
        yield
    except (OSError, pa.ArrowException, SafetensorError) as error:
        code = getattr(error, "errno", None)
        said = (getattr(error, "strerror", None) if code else None) or " ".join(str(error).split())
        if code is None and (found := re.search(r"\(os error (\d+)\)", said)):  # as safetensors, in Rust, says it
            code, said = int(found[1]), os.strerror(int(found[1]))
        if code in DISK_FULL or "requested and" in said:  # numpy's short writes carry no errno
            remedy = "free space (`python -m pipelines.store gc`) or choose another store"
        elif code in NOT_ALLOWED:
            remedy = "make it writable for this user or choose another store"
        elif code in (errno.ENOTDIR, errno.EEXIST):
            remedy = "a file stands where a folder is needed: move it or choose another store"
        else:
            remedy = "check that the path exists and can be reached"
        raise StoreError(f"{path}: cannot {action}: {said}; {remedy}") from error
