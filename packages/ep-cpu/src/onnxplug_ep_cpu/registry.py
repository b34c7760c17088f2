"""The kernel registry: every entry of ``onnxplug_kernels`` with NumPy as its namespace, built once per process."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import Kernel, KernelDef, KernelRegistry, NodeView, type_strings
from onnxplug_ep_cpu.kernels.forms import Form, NumPyKernel, forms
from onnxplug_ep_cpu.kernels.nms import suppression
from onnxplug_kernels.catalogue import OpKernel, catalogue

# The output is the input under another shape.
ALIASES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


@functools.cache
def registry() -> KernelRegistry:
    """The kernels of ``CPUExecutionProvider``; one object for all sessions."""
    writing = forms()
    return KernelRegistry(_definition(entry, writing.get((entry.domain, entry.op_type), ())) for entry in catalogue())


def _definition(entry: OpKernel, candidates: Sequence[Form]) -> KernelDef:
    matching = [form for form in candidates if form.since <= entry.until and entry.since <= form.until]
    inplace = sorted({index for form in matching for index in form.inplace})
    return KernelDef(
        entry.domain,
        entry.op_type,
        entry.since,
        functools.partial(_create, entry, matching),
        entry.until,
        {name: type_strings(elements) for name, elements in entry.types.items()},
        alias={0: 0} if entry.domain == "" and entry.op_type in ALIASES else {},
        inplace={0: tuple(inplace)} if inplace else {},
    )


def _create(entry: OpKernel, candidates: Sequence[Form], node: NodeView) -> Kernel | Callable[..., Any]:
    attributes = dict(node.attributes)
    if entry.prepare is not None:
        return entry.prepare(np, **attributes)
    if entry.op_type == "NonMaxSuppression":
        return suppression(**attributes)  # type: ignore[no-any-return]
    counted = {"n_outputs": len(node.outputs)} if _counts_outputs(entry.function) else {}
    function = functools.partial(entry.function, np, **attributes, **counted)
    form = next((f for f in candidates if f.since <= node.since_version <= f.until), None)
    return function if form is None else NumPyKernel(function, form, attributes)


@functools.cache
def _counts_outputs(function: Callable[..., Any]) -> bool:
    return "n_outputs" in inspect.signature(function).parameters
