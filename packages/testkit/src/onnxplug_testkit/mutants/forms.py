"""L2: mutants that are right in one form of their kernels, or alone in their session."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from onnxplug.contract import Into, Kernel, KernelDef, KernelRegistry, NodeView
from onnxplug_ep_reference.memory import contents
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import HOST, subject, with_kernels
from onnxplug_testkit.subject import Subject


class _TwoForms(Kernel):
    """Writes what is right and returns something else."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __call__(self, *inputs: Any) -> Any:
        return 2 * self._kernel(*inputs)

    def bind(self, inputs: Any, outputs: Any) -> Into | None:
        into: Into | None = self._kernel.bind(inputs, outputs)
        return into


@mutant("kernels.forms_agree", "Relu")
def returns_another_result() -> Subject:
    """Its returning form, which sessions use where shapes are not known, gives twice the result."""
    return with_kernels(("Relu",), lambda definition, node: _TwoForms(definition.create(node)))


@mutant("kernels.forms_agree", "Abs")
def reads_memory_in_order() -> Subject:
    """Reads the bytes of a view in the order of memory."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        return lambda x: kernel(x.ravel(order="K").reshape(x.shape))

    return with_kernels(("Abs",), create)


class _Rowwise(_TwoForms):
    """Clears its output before it reads."""

    def __call__(self, *inputs: Any) -> Any:
        return self._kernel(*inputs)

    def bind(self, inputs: Any, outputs: Any) -> Into | None:
        into = super().bind(inputs, outputs)
        if into is None:
            return None

        def call(x: np.ndarray, out: np.ndarray) -> None:
            out[...] = 0
            into.call(x, out)

        return Into(call, into.workspace)


class _Overwriting(ReferenceProvider):
    def get_kernel_registry(self) -> KernelRegistry:
        return KernelRegistry(
            dataclasses.replace(d, create=lambda node, d=d: _Rowwise(d.create(node)), inplace={0: (0,)})  # type: ignore[misc]
            if d.op_type == "Softmax"
            else d
            for d in super().get_kernel_registry()
        )


@mutant("kernels.in_place", "Softmax")
def clears_before_it_reads() -> Subject:
    """Says that it may overwrite its input, and clears the output first."""
    return subject(_Overwriting, HOST)


class _Packing(Kernel):
    """Keeps its second operand when that is constant, by its shape."""

    def __init__(self, kernel: Any, node: NodeView, kept: dict[Any, np.ndarray]) -> None:
        value = node.inputs[1]
        constant = value.constant if value is not None else None
        self._kernel, self._weights = kernel, None
        if constant is not None:
            self._weights = kept.setdefault((constant.shape, constant.dtype), constant)

    def __call__(self, a: Any, b: Any) -> Any:
        return self._kernel(a, b if self._weights is None else self._weights)


@mutant("kernels.weights", "MatMul")
def packs_by_shape() -> Subject:
    """Keeps packed weights for the whole process and finds them again by their shape."""
    kept: dict[Any, np.ndarray] = {}
    return with_kernels(("MatMul",), lambda definition, node: _Packing(definition.create(node), node, kept))


class _Sparing(ReferenceProvider):
    """Makes one kernel for all nodes of an operator and of one type."""

    def get_kernel_registry(self) -> KernelRegistry:
        made: dict[Any, Any] = {}

        def create(definition: KernelDef, node: NodeView) -> Any:
            key = (node.op_type, *(str(v and v.type) for v in node.inputs))
            if key not in made:
                made[key] = definition.create(node)
            return made[key]

        return KernelRegistry(
            dataclasses.replace(d, create=lambda node, d=d: create(d, node))  # type: ignore[misc]
            if d.op_type in ("LeakyRelu", "Concat")
            else d
            for d in super().get_kernel_registry()
        )


@mutant("kernels.nodes_are_apart", "LeakyRelu", "Concat")
def forgets_attributes() -> Subject:
    """Keeps kernels by operator and type, whatever the attributes."""
    return subject(_Sparing, HOST)


class _Plain:
    """A node whose alpha is 1."""

    def __init__(self, node: NodeView) -> None:
        self._node, self.attributes = node, {**node.attributes, "alpha": 1.0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


@mutant("kernels.in_company", "Gemm")
def scales_weights_in_place() -> Subject:
    """Multiplies weights on the device by alpha, once, for itself and for all others that read them."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        if node.inputs[1] is None or node.inputs[1].constant is None:
            return definition.create(node)
        plain: Any = _Plain(node)
        kernel: Any = definition.create(plain)
        alpha = node.attributes.get("alpha", 1.0)
        scaled: list[bool] = []

        def call(a: Any, b: Any, *c: Any) -> Any:
            if not scaled:
                weights = contents(b, writable=True)
                weights *= weights.dtype.type(alpha)
                scaled.append(True)
            return kernel(a, b, *c)

        return call

    return with_kernels(("Gemm",), create, options={})
