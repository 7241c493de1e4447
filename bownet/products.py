"""Inner products in single precision: rows of two matrices go in, the product of each with each comes out.

torch multiplies matrices on CPUs with MKL, which leaves half of what AVX-512 can do aside where the processor is not
Intel's. oneDNN, with which torch convolves, does not: a matrix is an image whose pixels are rows, and a convolution of
1x1 their products.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_WORTH = 1 << 23  # multiplications, below which the start of a convolution costs more than it saves


def inner(x_ND: Tensor, y_KD: Tensor, room_NK: Tensor | None = None) -> Tensor:
    """[N, K]. It may lie in `room_NK`, if that is given. Sums have another order than those of `x @ y.T`."""
    (n, d), k = x_ND.shape, len(y_KD)
    single = x_ND.dtype == y_KD.dtype == torch.float32 and x_ND.device.type == "cpu"
    if not (single and n * k * d >= _WORTH and _convolves_faster()):
        return torch.mm(x_ND, y_KD.T, out=room_NK)
    image = x_ND.reshape(1, n, 1, d).permute(0, 3, 1, 2)
    kernels = y_KD.reshape(k, d, 1, 1)
    made = torch.mkldnn_convolution(image, kernels, None, (0, 0), (1, 1), (1, 1), 1)
    return made.permute(0, 2, 3, 1).reshape(n, k)


@cache
def _convolves_faster() -> bool:
    known = torch.backends.mkldnn.is_available() and hasattr(torch, "mkldnn_convolution")
    return known and torch.backends.cpu.get_cpu_capability() == "AVX512" and not _is_intel()


def _is_intel() -> bool:
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return True  # not known: as torch does it
