"""L3: mutants that are right on single nodes and wrong in graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract import Into, Kernel, KernelDef, KernelRegistry, NodeView, RunContext
from onnxplug_ep_reference.memory import contents
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import HOST, subject, with_kernels
from onnxplug_testkit.mutants.compiling import Walk, with_regions
from onnxplug_testkit.subject import Subject


class _Careless(Kernel):
    """a - b in two steps, the first into the output: wrong when the output is b's memory."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __call__(self, *inputs: Any) -> Any:
        return self._kernel(*inputs)

    def bind(self, inputs: Any, outputs: Any) -> Into | None:
        same = all(spec is not None and spec.shape == outputs[0].shape for spec in (*inputs, *outputs))
        return Into(self._write) if same else None

    def _write(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, a)
        out -= b


class _Overwriting(ReferenceProvider):
    def get_kernel_registry(self) -> KernelRegistry:
        return KernelRegistry(
            dataclasses.replace(d, create=lambda node, d=d: _Careless(d.create(node)), inplace={0: (1,)})  # type: ignore[misc]
            if d.op_type == "Sub"
            else d
            for d in super().get_kernel_registry()
        )


@mutant("graph.random_graphs")
def aliases_wrongly() -> Subject:
    """Says that Sub may overwrite its second input and reads that input after the first write."""
    return subject(_Overwriting, HOST)


@mutant("graph.outputs_are_apart")
def aliases_live_outputs() -> Subject:
    """All kernels return one array for each shape, though earlier results are still wanted."""
    arrays: dict[tuple[int, ...], np.ndarray] = {}

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)

        def call(*inputs: np.ndarray) -> np.ndarray:
            result: np.ndarray = kernel(*inputs)
            shared = arrays.setdefault(result.shape, np.empty_like(result))
            np.copyto(shared, result)
            return shared

        return call

    return with_kernels(("Relu", "Abs", "Neg", "Sigmoid", "Tanh"), create)


@mutant("graph.dynamic_shapes")
def remembers_the_first_shape() -> Subject:
    """A kernel cuts every later tensor to the shape of its first one."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        shapes: list[tuple[int, ...]] = []

        def call(*inputs: np.ndarray) -> np.ndarray:
            result: np.ndarray = kernel(*inputs)
            shapes.append(result.shape)
            if result.size > int(np.prod(shapes[0])):
                result[shapes[0][0] :] = 0
            return result

        return call

    return with_kernels(("Relu",), create)


@mutant("graph.io_binding")
def scribbles_on_the_device() -> Subject:
    """Computes in place on the device, where the caller holds the input."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)

        def call(x: Any) -> Any:
            result = kernel(x)
            contents(x, writable=True)[...] = 0
            return result

        return call

    return with_kernels(("Relu",), create, options={})


class _Pooled(Walk):
    pool: dict[Any, np.ndarray] = {}  # noqa: RUF012  shared by all regions, which is what is wrong with it

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        return [
            self._kept((number, x.shape, x.dtype), x) for number, x in enumerate(super().__call__(context, *inputs))
        ]

    def _kept(self, key: Any, result: np.ndarray) -> np.ndarray:
        made = self.pool.setdefault(key, np.empty_like(result))
        np.copyto(made, result)
        return made


@mutant("graph.outputs_are_apart")
def shares_results_between_regions() -> Subject:
    """Has one place for the first result of a region, one for the second and so on, which all regions use."""
    _Pooled.pool.clear()
    return with_regions(_Pooled)
