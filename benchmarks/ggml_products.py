"""A product of ggml's CPU backend, called through the library that llama-cpp-python brings along."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

F32, Q4_0, Q8_0 = 0, 2, 8
"""Numbers of ``enum ggml_type``."""
BLOCK = 32
"""Weights that have a scale in common."""
ROOM = 1 << 20
"""Bytes for the descriptions of a few tensors and a graph."""


class Parameters(ctypes.Structure):
    """``struct ggml_init_params``."""

    _fields_ = (("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("descriptions_only", ctypes.c_bool))


def folder() -> Path:
    """Where llama-cpp-python has its libraries. ModuleNotFoundError where it is not installed."""
    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("llama_cpp is not installed (pip install llama-cpp-python)")
    return Path(found.origin).parent / "lib"


def library() -> Any:
    """The functions of ggml's CPU backend. Its threads sleep when a graph is done, as others' do here."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when the library is loaded
    for name in ("libggml-base.so", "libggml-cpu.so"):
        loaded = ctypes.CDLL(str(folder() / name), ctypes.RTLD_GLOBAL)
    pointers = (
        "ggml_init", "ggml_new_tensor_2d", "ggml_mul_mat", "ggml_new_graph", "ggml_backend_cpu_init", "ggml_backend_cpu_reg",
        "ggml_backend_reg_dev_get", "ggml_backend_reg_get_proc_address", "ggml_backend_alloc_ctx_tensors",
        "ggml_backend_alloc_ctx_tensors_from_buft", "ggml_get_data",
    )  # fmt: skip
    for name in pointers:
        getattr(loaded, name).restype = ctypes.c_void_p
    loaded.ggml_init.argtypes = [Parameters]
    loaded.ggml_new_tensor_2d.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    loaded.ggml_backend_tensor_set.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    loaded.ggml_backend_reg_get_proc_address.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    loaded.ggml_backend_reg_dev_get.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return loaded


def product(
    weights: np.ndarray, bits: int, k: int, x: np.ndarray, threads: int
) -> tuple[Callable[[], None], np.ndarray]:
    """(a call that multiplies x by weights as ``stored`` gives them, where its result is).

    Weights lie as llama.cpp has them: rearranged for the processor where the backend does that for their type.
    """
    g, (m, _), n = library(), x.shape, len(weights)
    backend = ctypes.c_void_p(g.ggml_backend_cpu_init())
    g.ggml_backend_cpu_set_n_threads(backend, threads)
    held, used = (ctypes.c_void_p(g.ggml_init(Parameters(ROOM, None, True))) for _ in range(2))
    w = ctypes.c_void_p(g.ggml_new_tensor_2d(held, {4: Q4_0, 8: Q8_0}[bits], k, n))
    place = _rearranging(g) if bits == 4 else None  # of types of 4 bits alone
    if place is None or not g.ggml_backend_alloc_ctx_tensors_from_buft(held, place):
        g.ggml_backend_alloc_ctx_tensors(held, backend)
    g.ggml_backend_tensor_set(w, weights.ctypes.data, 0, weights.nbytes)
    a = ctypes.c_void_p(g.ggml_new_tensor_2d(used, F32, k, m))
    y = ctypes.c_void_p(g.ggml_mul_mat(used, w, a))
    graph = ctypes.c_void_p(g.ggml_new_graph(used))
    g.ggml_build_forward_expand(graph, y)
    g.ggml_backend_alloc_ctx_tensors(used, backend)
    g.ggml_backend_tensor_set(a, x.ctypes.data, 0, x.nbytes)
    result = np.ctypeslib.as_array(ctypes.cast(g.ggml_get_data(y), ctypes.POINTER(ctypes.c_float)), (m, n))

    def run() -> None:
        if g.ggml_backend_graph_compute(backend, graph):
            raise RuntimeError("ggml did not compute the graph")

    return run, result


def stored(codes: np.ndarray, scales: np.ndarray, bits: int) -> np.ndarray:
    """[n, blocks, 32] codes from 0 on and [n, blocks] scales as [n, bytes] of Q4_0 or Q8_0."""
    if bits == 8:
        packed = (codes.astype(np.int16) - 128).astype(np.int8).view(np.uint8)
    else:
        packed = codes[..., : BLOCK // 2] | codes[..., BLOCK // 2 :] << 4
    steps = scales.astype(np.float16)[..., None].view(np.uint8)
    return np.ascontiguousarray(np.concatenate([steps, packed], -1).reshape(len(codes), -1))


def _rearranging(g: Any) -> ctypes.c_void_p | None:
    """The kind of buffer for weights that llama.cpp takes before the plain one, if the processor has such."""
    registry = ctypes.c_void_p(g.ggml_backend_cpu_reg())
    address = g.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return None
    found = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)(
        g.ggml_backend_reg_dev_get(registry, 0)
    )
    return ctypes.c_void_p(found[0]) if found and found[0] else None
