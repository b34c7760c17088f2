"""A kernel's writing form between guard bands: what it may write is its outputs and its workspace, not a byte before or behind them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxplug.contract import Kernel, KernelDef, KernelRegistry, TensorSpec
from onnxplug_testkit.check import Unsupported, fail
from onnxplug_testkit.models import graph_of
from onnxplug_testkit.space import Space
from onnxplug_testkit.subject import Subject

GUARD = 256
BYTES = np.dtype(np.uint8)


@dataclass(frozen=True)
class _Banded:
    """A native array with a band of noise on both sides. ``whole`` shows all of it, ``before`` is what it held at first."""

    native: Any
    whole: Any
    before: np.ndarray

    def keeps(self, after: np.ndarray, everything: bool) -> bool:
        """Whether the bands (and for inputs the contents) are as they were."""
        if everything:
            return after.tobytes() == self.before.tobytes()
        return all(
            after[band].tobytes() == self.before[band].tobytes() for band in (slice(0, GUARD), slice(-GUARD, None))
        )


def check_guards(
    subject: Subject, made: onnx.ModelProto, schema: Any, feeds: Mapping[str, Any], results: Sequence[Any],
    constants: Mapping[str, np.ndarray], rng: np.random.Generator,
) -> None:  # fmt: skip
    """CheckFailed when the kernel of a one-node model writes outside of its outputs. Nothing where it has no writing form for these
    shapes, or operands that are not dense tensors."""
    graph = graph_of(made, [] if schema is None else [schema])
    node = graph.nodes[0]
    operands = [None if v is None else feeds.get(v.name, constants.get(v.name)) for v in node.inputs]
    given = [v for v in (*operands, *results) if v is not None]
    if any(not isinstance(v, np.ndarray) or v.dtype.hasobject for v in given) or len(results) != len(node.outputs):
        return
    with subject.instance() as instance:
        found = (instance.call("get_kernel_registry") or KernelRegistry()).kernel_for(node)
        if not isinstance(found, KernelDef):
            return
        try:
            kernel = found.create(node)
        except NotImplementedError:
            # What compiles whatever it claims has no kernels; a session that asked would have failed.
            return
        if not isinstance(kernel, Kernel):
            return
        ins = [
            None if v is None or value is None else TensorSpec(v.dtype, v.shape, constants.get(value.name))
            for v, value in zip(operands, node.inputs, strict=True)
        ]
        into = kernel.bind(ins, [None if v is None else TensorSpec(v.dtype, v.shape) for v in results])
        if into is None:
            return
        with contextlib.ExitStack() as stack:
            inputs = [
                v if v is None or i in found.host_inputs else stack.enter_context(_banded(instance, rng, v))
                for i, v in enumerate(operands)
            ]
            outputs = [
                None if v is None else np.empty_like(v) if i in found.host_outputs
                else stack.enter_context(_banded(instance, rng, np.zeros_like(v)))
                for i, v in enumerate(results)
            ]  # fmt: skip
            scratch = (
                [stack.enter_context(_banded(instance, rng, np.zeros(into.workspace, BYTES)))] if into.workspace else []
            )
            arguments = [None if i in kernel.packed else v for i, v in enumerate(inputs)]
            into.call(*map(_native, (*arguments, *outputs, *scratch)))
            for what, places in (("input", inputs), ("output", outputs), ("workspace", scratch)):
                for index, place in enumerate(places):
                    if isinstance(place, _Banded) and not place.keeps(_read(instance, place.whole), what == "input"):
                        where = f"to input {index}" if what == "input" else f"outside of {what} {index}"
                        fail("kernels.guard_bands", f"the kernel writes {where}")


def _native(operand: Any) -> Any:
    return operand.native if isinstance(operand, _Banded) else operand


@contextlib.contextmanager
def _banded(instance: Any, rng: np.random.Generator, array: np.ndarray) -> Iterator[_Banded]:
    total = GUARD + array.nbytes + GUARD
    before = rng.integers(0, 256, total).astype(BYTES)
    before[GUARD : GUARD + array.nbytes] = np.frombuffer(array.tobytes(), BYTES)
    try:
        space = Space(instance)
    except Unsupported:  # host memory of the core's own
        yield _Banded(*_on_host(before, array), before.copy())
        return
    with space.block(total) as buffer:
        whole = space.view(buffer, BYTES, (total,))
        space.write(before, whole)
        yield _Banded(space.view(buffer, array.dtype, array.shape, GUARD), whole, before)


def _on_host(before: np.ndarray, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    room = np.empty(before.size + 64, BYTES)
    start = -room.ctypes.data % 64
    whole = room[start : start + before.size]
    whole[:] = before
    return whole[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape), whole


def _read(instance: Any, native: Any) -> np.ndarray:
    if isinstance(native, np.ndarray):
        return native.copy()
    return Space(instance).read(native)
