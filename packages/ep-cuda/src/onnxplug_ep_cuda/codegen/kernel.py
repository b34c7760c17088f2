"""Operators of which there is a generated kernel alone."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from onnxplug.contract import Into, Kernel, NodeView, TensorSpec
from onnxplug_ep_cuda.codegen.launch import Call, Lower
from onnxplug_ep_cuda.faults import Faults

Made = Callable[[NodeView, Sequence[TensorSpec | None]], TensorSpec]
"""The result's spec, from the node and the specs of its inputs."""

Counted = Callable[[NodeView, int], int]
"""The dimension that the data decides, from the node and the dimensions of its result."""


class Place(Protocol):
    """Where kernels run: the session's ``Queue``."""

    @property
    def entered(self) -> bool:
        """Whether this thread works there already."""

    def inside(self) -> AbstractContextManager[None]:
        """Work there for a while."""


def generated(
    lower: Lower, node: NodeView, inputs: Any, outputs: Any, *, faults: Faults | None = None, **_: Any
) -> Into | None:
    """The writing form of an operator with generated kernels."""
    job = lower(Call.of(node, inputs, outputs, faults))
    if job is None:
        return None
    from onnxplug_ep_cuda.codegen.bound import BoundJob

    return Into(BoundJob(job, faults), job.workspace)


class GeneratedKernel(Kernel):
    """A node with one result, by launches that are described anew for shapes no plan knew."""

    def __init__(
        self, xp: Any, place: Place, lower: Lower, made: Made, node: NodeView, faults: Faults | None = None
    ) -> None:
        self._xp, self._place, self._made, self._node = xp, place, made, node
        self._form = functools.partial(generated, lower, node, faults=faults)

    def bind(self, inputs: Any, outputs: Any) -> Into | None:
        with self._place.inside():
            return self._form(inputs, outputs)

    def __call__(self, *inputs: Any) -> Any:
        results = self._results(inputs, [self._made(self._node, _specs(inputs))])
        assert results is not None
        return results[0]

    def _results(self, inputs: Sequence[Any], specs: Sequence[TensorSpec]) -> list[Any] | None:
        with self._place.inside():
            into = self._form(_specs(inputs), specs)
            if into is None:
                return None
            made = [self._xp.empty(spec.shape, dtype=spec.dtype) for spec in specs]
            scratch = [self._xp.empty((into.workspace,), dtype=np.uint8)] if into.workspace else []
            into.call(*inputs, *made, *scratch)
            return made


class CountedKernel(GeneratedKernel):
    """A node whose result is as long, along one dimension, as the data decides, ``made`` at most; how long, an int64, the host waits for.
    ``counted`` says which dimension that is, of a result of so many; ``otherwise`` computes what the lowering leaves."""

    def __init__(
        self,
        xp: Any,
        place: Place,
        lower: Lower,
        made: Made,
        node: NodeView,
        faults: Faults | None = None,
        counted: Counted = lambda node, rank: 0,
        otherwise: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(xp, place, lower, made, node, faults)
        self._counted, self._otherwise = counted, otherwise

    def bind(self, inputs: Any, outputs: Any) -> None:
        return None

    def __call__(self, *inputs: Any) -> Any:
        with self._place.inside():
            most = self._made(self._node, _specs(inputs))
            results = self._results(inputs, [most, TensorSpec(np.dtype(np.int64), (1,))])
            if results is None:
                assert self._otherwise is not None
                return self._otherwise(*inputs)
            made, total = results
            axis = self._counted(self._node, len(most.shape))
            if most.shape[axis] == 0:
                return made
            shape = (*most.shape[:axis], int(total.get()[0]), *most.shape[axis + 1 :])
            return made.reshape(-1)[: math.prod(shape)].reshape(shape)  # dense, at the beginning


def _specs(inputs: Sequence[Any]) -> list[TensorSpec | None]:
    return [
        None if x is None else TensorSpec(x.dtype, x.shape, x if isinstance(x, np.ndarray) else None) for x in inputs
    ]
