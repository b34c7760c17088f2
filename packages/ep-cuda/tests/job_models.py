"""Nodes with generated kernels: their jobs, run on an OpenCL device of the processor, and what the portable kernels give in float64."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug.contract import TensorSpec
from onnxplug_ep_cuda.codegen.launch import Call, Job, Launch
from onnxplug_ep_cuda.codegen.table import ALONE, LOWERINGS
from onnxplug_kernels.catalogue import find

NARROW = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}


@dataclass(frozen=True)
class Node:
    """A node with its inputs; ``outputs`` says which of them are asked for, ``hosted`` which inputs the plan knows."""

    op_type: str
    version: int
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[bool] = (True,)
    domain: str = ""
    hosted: Sequence[int] = ()

    def wanted(self) -> list[np.ndarray | None]:
        """The outputs, computed in float64 where the inputs are floats, then in the types the portable kernel gives."""
        entry = find(self.domain, self.op_type, self.version)
        assert entry is not None
        given = dict(self.attributes)
        if "n_outputs" in entry.function.__code__.co_varnames:
            given["n_outputs"] = len(self.outputs)
        with np.errstate(all="ignore"):
            plain = _listed(entry.function(np, *self.inputs, **given))
            wide = _listed(entry.function(np, *(_widened(x) for x in self.inputs), **given))
        return [w if p is not None and asked else None for p, w, asked in zip(plain, wide, self.outputs, strict=False)]

    def types(self) -> list[np.dtype | None]:
        """The outputs' dtypes."""
        entry = find(self.domain, self.op_type, self.version)
        assert entry is not None
        given = dict(self.attributes)
        if "n_outputs" in entry.function.__code__.co_varnames:
            given["n_outputs"] = len(self.outputs)
        with np.errstate(all="ignore"):
            plain = _listed(entry.function(np, *self.inputs, **given))
        return [None if p is None else p.dtype for p in plain]

    def call(self) -> Call:
        """The node as a lowering sees it."""
        inputs = [
            None if x is None else TensorSpec(x.dtype, x.shape, x if n in self.hosted else None)
            for n, x in enumerate(self.inputs)
        ]
        outputs = [
            None if y is None or dtype is None else TensorSpec(dtype, np.shape(y))
            for y, dtype in zip(self.wanted(), self.types(), strict=True)
        ]
        return Call(self.op_type, self.version, self.attributes, inputs, outputs)

    def job(self) -> Job | None:
        """What is launched for it."""
        name = self.domain, self.op_type
        return (LOWERINGS[name] if name in LOWERINGS else ALONE[name][1])(self.call())

    def results(self) -> list[np.ndarray | None]:
        """The outputs of its job, run by OpenCL."""
        job, call = self.job(), self.call()
        assert job is not None, f"{self.op_type} has no generated kernel here"
        return on_opencl(job, self.inputs, call.outputs)


def on_opencl(
    job: Job,
    inputs: Sequence[np.ndarray | None],
    outputs: Sequence[TensorSpec | None],
    scratch: np.ndarray | None = None,
    told: list[int] | None = None,
) -> list[np.ndarray | None]:
    """A job's kernels in their OpenCL dialect, run by PoCL. Skips the test where there is none. ``scratch``: what the scratch memory begins
    with. ``told`` is given the number that a kernel left, 0 for none."""
    cl, context, queue = device()
    flags, made = cl.mem_flags.COPY_HOST_PTR, []
    for x in inputs:
        # A copy with its bytes in order, for the array may be a view; and one byte more, for it may be empty.
        made.append(x if x is None else cl.Buffer(context, flags, hostbuf=np.frombuffer(x.tobytes() + b"\0", np.uint8)))
    for spec in outputs:
        made.append(None if spec is None else cl.Buffer(context, 0, max(spec.nbytes, 1)))
    made.append(cl.Buffer(context, 0, max(job.workspace, 1)))
    fault = cl.Buffer(context, flags, hostbuf=np.zeros(1, np.int32))
    if scratch is not None:
        cl.enqueue_copy(queue, made[-1], np.ascontiguousarray(scratch))
    for launch in job.launches:
        program = built(launch.text)
        places = [(made[ref.number] if ref.number >= 0 else fault, np.int64(ref.offset)) for ref in launch.tensors]
        arguments = [part for place in places for part in place]
        items = (launch.grid * launch.block,)
        cl.Kernel(program, launch.name)(queue, items, (launch.block,), *arguments, *launch.scalars)
    if told is not None:
        left = np.empty(1, np.int32)
        cl.enqueue_copy(queue, left, fault)
        told.append(int(left[0]))
    results: list[np.ndarray | None] = []
    for spec, buffer in zip(outputs, made[len(inputs) :], strict=False):
        if spec is None:
            results.append(None)
            continue
        flat = np.empty(spec.nbytes, np.uint8)
        cl.enqueue_copy(queue, flat, buffer)
        results.append(flat.view(spec.dtype).reshape(spec.shape))
    return results


@functools.cache
def built(text: str) -> Any:
    """A program of kernels in their OpenCL dialect."""
    from onnxplug_kernel_text.opencl import PRELUDE

    cl, context, _ = device()
    return cl.Program(context, PRELUDE + text).build(cache_dir=False)


@functools.cache
def device() -> tuple[Any, Any, Any]:
    """pyopencl, a context and a queue of PoCL, or of the simulator Oclgrind. Skips the test where there is none."""
    cl = pytest.importorskip("pyopencl", reason="capability: OpenCL (pyopencl is not installed)")
    platforms = [p for p in cl.get_platforms() if p.name in ("Portable Computing Language", "Oclgrind")]
    if not platforms:
        pytest.skip("capability: PoCL or Oclgrind, OpenCL platforms that run on the processor")
    context = cl.Context(platforms[0].get_devices()[:1])
    return cl, context, cl.CommandQueue(context)


def close(node: Node, factor: float = 16.0, results: Sequence[np.ndarray | None] | None = None) -> None:
    """Results, by default those of OpenCL, against float64: within ``factor`` units of arithmetic, float32's for 16-bit types, at the
    magnitude of the output, and one rounding to the result's type."""
    for got, right in zip(node.results() if results is None else results, node.wanted(), strict=True):
        if right is None:
            continue
        assert got is not None and got.shape == np.shape(right)
        if got.dtype.kind in "iub":
            np.testing.assert_array_equal(got, right)
            continue
        eps = float(ml_dtypes.finfo(got.dtype).eps)
        unit, rounding = (2.0**-23, eps) if got.dtype.itemsize == 2 else (eps, 0.0)
        with np.errstate(over="ignore"):
            beyond = np.isinf(right.astype(got.dtype))
        exact = np.where(beyond, np.copysign(np.inf, right), right).astype(np.float64)
        size = np.abs(exact[np.isfinite(exact)]).max(initial=1e-3)
        np.testing.assert_allclose(
            got.astype(np.float64), exact, rtol=factor * unit + rounding, atol=factor * unit * size
        )


def draw(rng: np.random.Generator, shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
    """Numbers of a type, small integers for integer types."""
    if np.dtype(dtype).kind in "iub":
        return rng.integers(0, 2 if np.dtype(dtype).kind == "b" else 9, shape).astype(dtype)
    return np.asarray(rng.standard_normal(shape) * 2).astype(dtype)


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]


def _widened(x: np.ndarray | None) -> np.ndarray | None:
    """A float tensor in float64, without rounding."""
    is_float = x is not None and (x.dtype.kind == "f" or x.dtype.name == "bfloat16")
    return x.astype(np.float64) if is_float and x is not None else x


def named(jobs: Sequence[Job]) -> str:
    """The texts of jobs as one program."""
    return "\n".join(re.sub(rf"\b{launch.name}(?=(_\w+)?\()", name, launch.text) for name, launch in launches(jobs))


def launches(jobs: Sequence[Job]) -> list[tuple[str, Launch]]:
    """Launches with the names of their kernels in that program."""
    return [(f"k{n}_{m}_{launch.name}", launch) for n, job in enumerate(jobs) for m, launch in enumerate(job.launches)]
