"""Where a task computes: on the GPU that Ray has given it, or on the CPU."""

from __future__ import annotations


def own_device() -> str:
    """`cuda` only where Ray assigned a GPU: to a task that asked for none it leaves those of its node visible."""
    import ray

    return "cuda" if ray.is_initialized() and ray.get_gpu_ids() else "cpu"
