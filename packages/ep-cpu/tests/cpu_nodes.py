"""Kernels without a session: a stand-in for the graph's nodes, and both forms of a kernel side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from onnx import defs

from onnxplug.contract import Into, Kernel, KernelDef, TensorSpec, TensorType, element_of
from onnxplug_ep_cpu.registry import registry


@dataclass(frozen=True)
class Value:
    """A value of a graph of one node."""

    name: str
    type: TensorType | None = None
    constant: np.ndarray | None = None
    producer: Any = None
    consumers: Sequence[Any] = ()

    @property
    def dtype(self) -> np.dtype | None:
        return None if self.type is None else self.type.dtype

    @property
    def shape(self) -> Any:
        return None if self.type is None else self.type.shape


@dataclass(frozen=True)
class Node:
    """A node as a provider sees it."""

    op_type: str
    since_version: int
    attributes: Mapping[str, Any]
    inputs: Sequence[Value | None]
    outputs: Sequence[Value | None]
    domain: str = ""
    name: str = "node"
    captures: Sequence[Any] = ()
    subgraphs: Mapping[str, Any] = field(default_factory=dict)
    constraint_types: Mapping[str, str] = field(default_factory=dict)


class Case:
    """One node with its inputs. ``constant`` are the indices of inputs that a plan would know."""

    def __init__(
        self,
        op_type: str,
        version: int,
        *inputs: Any,
        constant: Sequence[int] = (),
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> None:
        since = version if domain == "com.microsoft" else defs.get_schema(op_type, version, domain).since_version
        self.inputs = [None if x is None else np.asarray(x) for x in inputs]
        values = [
            None
            if x is None
            else Value(f"x{i}", TensorType(element_of(x.dtype), x.shape), x if i in constant else None)
            for i, x in enumerate(self.inputs)
        ]
        self.node = Node(op_type, since, attributes, values, [Value(f"y{i}") for i in range(outputs)], domain)
        found = registry().kernel_for(self.node)
        assert isinstance(found, KernelDef), found
        self.definition = found
        self.kernel = found.create(self.node)
        self.constant = constant

    def returned(self) -> tuple[np.ndarray, ...]:
        """What the returning form gives."""
        with np.errstate(all="ignore"):
            result = self.kernel(*self.inputs)
        return tuple(map(np.asarray, result if isinstance(result, tuple) else (result,)))

    def bind(self, outputs: Sequence[np.ndarray]) -> Into | None:
        """The writing form for these inputs."""
        if not isinstance(self.kernel, Kernel):
            return None
        specs = [
            None if x is None else TensorSpec(x.dtype, x.shape, x if i in self.constant else None)
            for i, x in enumerate(self.inputs)
        ]
        return self.kernel.bind(specs, [TensorSpec(y.dtype, y.shape) for y in outputs])

    def check(self, rtol: float = 1e-5, atol: float = 1e-6) -> Into:
        """Both forms agree, inputs stay as they are, and writing over an input gives the same where it is allowed."""
        expected = self.returned()
        bound = self.bind(expected)
        assert bound is not None, f"{self.node.op_type} has no writing form here"
        before = [None if x is None else x.copy() for x in self.inputs]
        _close(self.run(bound, [poisoned(y) for y in expected]), expected, rtol, atol)
        for x, copy in zip(self.inputs, before, strict=True):
            assert x is None or x.tobytes() == copy.tobytes()  # type: ignore[union-attr]
        for output, sources in self.definition.inplace.items():
            for source in sources:
                x = self.inputs[source] if source < len(self.inputs) else None
                if x is None or (x.shape, x.dtype) != (expected[output].shape, expected[output].dtype):
                    continue
                shared = x.copy()
                inputs = [shared if i == source else y for i, y in enumerate(self.inputs)]
                outputs = [shared if i == output else poisoned(y) for i, y in enumerate(expected)]
                _close(self.run(bound, outputs, inputs), expected, rtol, atol)
        return bound

    def run(
        self, bound: Into, outputs: Sequence[np.ndarray], inputs: Sequence[Any] | None = None
    ) -> Sequence[np.ndarray]:
        """One call of the writing form, with a workspace full of NaN."""
        workspace = [np.full(bound.workspace, 0xFF, np.uint8)] if bound.workspace else []
        with np.errstate(all="ignore"):
            bound.call(*(self.inputs if inputs is None else inputs), *outputs, *workspace)
        return outputs


@st.composite
def arrays(
    draw: st.DrawFn,
    shape: Sequence[int] | st.SearchStrategy[tuple[int, ...]],
    dtype: Any = np.float32,
    special: bool = False,
) -> np.ndarray:
    """An array of a shape, sometimes not contiguous; ``special`` mixes in infinities, NaN, zeros and extremes."""
    shape = tuple(shape if not isinstance(shape, st.SearchStrategy) else draw(shape))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = np.dtype(dtype)
    order = shape[::-1] if (flipped := draw(st.booleans())) else shape
    if dtype.kind == "b":
        array = rng.random(order) < 0.5
    elif dtype.kind in "iu":
        array = rng.integers(-20 if dtype.kind == "i" else 0, 20, order).astype(dtype)
    else:
        array = (3 * rng.standard_normal(order)).astype(dtype)
        if special:
            odd = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e4, -1e4, 1e-7]).astype(dtype)
            array = np.where(rng.random(order) < 0.2, rng.choice(odd, order), array)
    return array.T if flipped else array


shapes = st.lists(st.integers(1, 6), max_size=4).map(tuple)
"""Shapes of up to four dimensions without empty ones."""


def poisoned(like: np.ndarray) -> np.ndarray:
    """An array whose bytes are all set: NaN in floating types."""
    array = np.empty(like.shape, like.dtype)
    array.reshape(-1).view(np.uint8).fill(0xFF if like.dtype != bool else 1)
    return array


def _close(got: Sequence[np.ndarray], expected: Sequence[np.ndarray], rtol: float, atol: float) -> None:
    for a, b in zip(got, expected, strict=True):
        if a.dtype == ml_dtypes.bfloat16:
            a, b = a.astype(np.float32), b.astype(np.float32)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(a, b)
