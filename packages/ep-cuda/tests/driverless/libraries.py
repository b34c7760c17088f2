"""What comes compiled, or is NVIDIA's, computed by NumPy when its turn on the stream comes: Thrust's sorting, CUB, cuDNN's plans."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from driverless.calls import Driver

WORKSPACE = 4096
"""Bytes of scratch memory that a plan of cuDNN's asks for, and writes."""


def at(address: int, dtype: Any, shape: Sequence[int]) -> np.ndarray:
    """The array at an address."""
    size = np.dtype(dtype).itemsize * math.prod(shape)
    block = (ctypes.c_ubyte * size).from_address(address)
    return np.frombuffer(block, np.uint8).view(dtype).reshape(shape)


def install(driver: Driver) -> None:
    """Thrust and CUB, once CuPy is imported."""
    import cupy
    from cupy.cuda import thrust

    def put(work: Callable[[], None]) -> None:
        driver.queues.put(cupy.cuda.get_current_stream().ptr, work)

    def sort(dtype: Any, data: int, keys: int, shape: Sequence[int]) -> None:
        put(lambda: at(data, dtype, shape).sort(axis=-1, kind="stable"))

    def argsort(dtype: Any, places: int, data: int, keys: int, shape: Sequence[int]) -> None:
        def work() -> None:
            values, order = at(data, dtype, shape), at(places, np.int64, shape)
            order[...] = np.argsort(values, axis=-1, kind="stable")
            values.sort(axis=-1, kind="stable")

        put(work)

    def lexsort(dtype: Any, places: int, keys: int, k: int, n: int) -> None:
        def work() -> None:
            at(places, np.int64, (n,))[...] = np.lexsort(at(keys, dtype, (k, n)))

        put(work)

    for function in (sort, argsort, lexsort):
        checked = getattr(thrust, function.__name__)

        def called(*given: Any, checked: Any = checked, function: Any = function) -> None:
            checked(*given)
            function(*given)

        setattr(thrust, function.__name__, called)
    _cub(cupy, put)


def _cub(cupy: Any, put: Callable[[Callable[[], None]], None]) -> None:
    from cupy.cuda import cub

    functions = {
        cub.CUPY_CUB_SUM: np.add.reduce, cub.CUPY_CUB_PROD: np.multiply.reduce, cub.CUPY_CUB_MIN: np.minimum.reduce,
        cub.CUPY_CUB_MAX: np.maximum.reduce, cub.CUPY_CUB_ARGMIN: np.argmin, cub.CUPY_CUB_ARGMAX: np.argmax,
    }  # fmt: skip

    def reduced(
        x: Any, op: int, reduce_axis: tuple[int, ...], out_axis: tuple[int, ...], out: Any = None, keepdims: bool = False,
        contiguous_size: int = 0,
    ) -> Any:  # fmt: skip
        places = op in (cub.CUPY_CUB_ARGMIN, cub.CUPY_CUB_ARGMAX)
        shape = tuple(
            1 if n in reduce_axis else size for n, size in enumerate(x.shape) if keepdims or n not in reduce_axis
        )
        x = cupy.ascontiguousarray(x)  # of one dimension at least
        y = cupy.empty(shape, np.int64 if places else x.dtype)
        source, target = x.data.ptr, y.data.ptr

        def work() -> None:
            values = at(source, x.dtype, x.shape)
            axis = None if places else reduce_axis
            at(target, y.dtype, shape)[...] = functions[op](values, axis=axis or None).reshape(shape)

        put(work)
        if out is not None:
            cupy._core.elementwise_copy(y, out)
            return out
        return y

    def scanned(x: Any, op: int) -> Any:
        x = cupy.ascontiguousarray(x)
        source = x.data.ptr
        function = {cub.CUPY_CUB_CUMSUM: np.cumsum, cub.CUPY_CUB_CUMPROD: np.cumprod}[op]

        def work() -> None:
            flat = at(source, x.dtype, (x.size,))
            flat[...] = function(flat, dtype=x.dtype)

        put(work)
        return x

    cub.device_reduce = cub.device_segmented_reduce = reduced
    cub.device_scan = scanned


class Plan:
    """A problem that is its own plan."""

    def __init__(self, problem: Any) -> None:
        self.problem = problem

    def get_workspace_size(self) -> int:
        return WORKSPACE


def session(driver: Driver) -> type:
    """A session of cuDNN's whose plans NumPy executes, which write their scratch memory as well."""
    from onnxplug_ep_cuda.dnn.attention import Attention
    from onnxplug_ep_cuda.dnn.session import DnnSession

    class Session(DnnSession):
        def __init__(self, options: Any, queue: Any) -> None:
            self._queue = queue
            self._convolutions = self._attentions = None  # type: ignore[assignment]

        def _plan(self, planner: Any, problem: Any) -> Any:
            return Plan(problem)

        def execute(self, plan: Any, addresses: Mapping[int, int], workspace: int) -> None:
            problem, places = plan.problem, dict(addresses)
            for address in (*places.values(), workspace):
                if driver._of(address) is None:
                    driver.broken.append(f"cuDNN is given {address}, which is no memory of the device")
                    return

            def work() -> None:
                ctypes.memset(workspace, 0xFF, WORKSPACE)
                if isinstance(problem, Attention):
                    _attend(problem, places)
                else:
                    _convolve(problem.conv, places)

            driver.queues.put(self._queue.compute.ptr, work)

        def close(self) -> None:
            pass

    return Session


def _convolve(conv: Any, places: Mapping[int, int]) -> None:
    from onnxplug.contract.types import numpy_dtype
    from onnxplug_ep_cuda.conv.columns import by_columns
    from onnxplug_ep_cuda.conv.problem import nhwc
    from onnxplug_ep_cuda.dnn import convolution as c

    dtype = numpy_dtype({"float32": "float"}.get(conv.dtype, conv.dtype))
    x, w, y = (at(places[uid], dtype, nhwc(shape)) for uid, shape in ((c.X, conv.x), (c.W, conv.w), (c.Y, conv.y)))
    bias = at(places[c.BIAS], dtype, (conv.y[1],)) if conv.bias else None
    residual = at(places[c.RESIDUAL], dtype, nhwc(conv.y)) if conv.residual else None
    y[...] = by_columns(np, conv, x, w, bias, residual)


def _attend(problem: Any, places: Mapping[int, int]) -> None:
    from onnxplug.contract.types import numpy_dtype
    from onnxplug_ep_cuda.dnn import attention as a

    dtype = numpy_dtype({"float32": "float"}.get(problem.dtype, problem.dtype))

    def seen(uid: int, tensor: Any, kind: Any = dtype) -> np.ndarray:
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))
        flat = at(places[uid], kind, (span,))
        steps = tuple(s * flat.itemsize for s in tensor.strides)
        return np.lib.stride_tricks.as_strided(flat, tensor.shape, steps)

    q, k, v = (seen(uid, t).astype(np.float64) for uid, t in ((a.Q, problem.q), (a.K, problem.k), (a.V, problem.v)))
    share = q.shape[1] // k.shape[1]
    scores = q @ np.repeat(k, share, 1).swapaxes(2, 3) * problem.scale
    if problem.bias is not None:
        scores = scores + seen(a.BIAS, problem.bias, np.float32)
    if problem.causal:
        rows, keys = scores.shape[2:]
        scores = np.where(np.tri(rows, keys, keys - rows, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    seen(a.Y, problem.y)[...] = (weights @ np.repeat(v, share, 1)).astype(dtype)
