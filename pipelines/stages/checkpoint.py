"""teacher: the base convnet Φ̂ from a file of weights that others, or this program, have trained."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from bownet.config import Net
from bownet.nets.checkpoint import save_backbone
from bownet.nets.importing import ARCH_FLAG, load_weights
from pipelines.stages.model_stage import ModelStage
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Workspace


@dataclass(frozen=True)
class CheckpointNet(ModelStage):
    """Not trained here. Its key is the content of the file, wherever that lies and whatever it is called."""

    net: Net
    weights: str = field(metadata=NOT_IN_KEY)  # the path of the file on the machine that starts the run
    setting: str = field(default="teacher.weights", metadata=NOT_IN_KEY)  # as people name the file
    arch_flag: str = field(default=ARCH_FLAG, metadata=NOT_IN_KEY)  # and its architecture

    name = "checkpoint-net"
    title = "network"
    version = 1

    def config(self) -> dict[str, Any]:
        return {**super().config(), "sha256": self._digest()}

    def check(self) -> None:
        """That all weights are there and fit the architecture."""
        try:
            _fits(*self._file, self.net, self.arch_flag)
        except ValueError as error:
            raise ValueError(f"{self.setting}={error}") from error

    def estimate(self) -> Estimate:
        _, size, _ = self._file
        return Estimate("no training", 3 * size, size)

    def build(self, work: Workspace) -> dict[str, Any]:
        sha256 = self._digest()
        backbone, report = load_weights(self.weights, self.net, self.arch_flag)
        about = {"key": work.key, "source_sha256": sha256, "source_place": report.place}
        work.write_via("backbone.safetensors", lambda path: save_backbone(backbone, self.net, path, about))
        return {"file": report.file, "sha256": sha256, "report": report.lines()}

    def remark(self, artifact: Artifact) -> str | None:
        return "; ".join(artifact.info["report"])

    def _digest(self) -> str:
        try:
            return _sha256(*self._file)
        except OSError as error:
            raise ValueError(
                f"{self.setting}={self.weights}: {error.strerror}; make it readable for this user"
            ) from error

    @property
    def _file(self) -> tuple[str, int, int]:
        """Path, size and time of the last change: what is known of a file without reading it."""
        path = Path(self.weights).expanduser().absolute()
        if not path.is_file():
            raise ValueError(f"{self.setting}={self.weights}: there is no such file on this machine; name another")
        stat = path.stat()
        return str(path), stat.st_size, stat.st_mtime_ns


# A plan and a run ask several times; size and time are there to ask again when the file has changed.
@lru_cache(maxsize=16)
def _sha256(path: str, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=16)
def _fits(path: str, size: int, changed: int, net: Net, arch_flag: str) -> None:
    load_weights(path, net, arch_flag)
