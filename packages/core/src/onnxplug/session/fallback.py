"""Who is tried after providers that could not be used."""

from __future__ import annotations

from typing import Any

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
TENSORRT = ("TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider")


def fallback_for(providers: Any) -> list[str]:
    """CUDA after TensorRT where both were asked for, else the CPU."""
    names = [p[0] if isinstance(p, tuple) and p else p for p in providers or ()]
    return [CUDA, CPU] if CUDA in names and any(name in names for name in TENSORRT) else [CPU]


def announce_fallback(error: Exception, providers: Any, rest: list[str]) -> None:
    """Say so as onnxruntime does."""
    print("*************** EP Error ***************")
    print(f"EP Error {error} when using {providers}")
    print(f"Falling back to {rest} and retrying.")
    print("****************************************")
