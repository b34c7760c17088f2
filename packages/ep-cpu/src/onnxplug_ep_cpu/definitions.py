"""Kernel definitions of the catalogue's entries, with NumPy as their namespace. Imported when a kernel is first asked for: a session whose
graph is regions of an earlier process's asks for none."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

from onnxplug.contract import Kernel, KernelDef, NodeView, type_strings
from onnxplug_ep_cpu.kernels.forms import Form, NumPyKernel, forms
from onnxplug_ep_cpu.namespace import numpy
from onnxplug_ep_cpu.threads import LimitedKernel
from onnxplug_kernels.catalogue import OpKernel, catalogue, entries
from onnxplug_kernels.fitting import RULES, fitted, misfit

# The output is the input under another shape.
ALIASES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})

BLAS = frozenset(
    {
        "attention", "contrib_activation", "contrib_attention", "contrib_causal_conv", "contrib_decoder", "contrib_fused", "contrib_gates",
        "contrib_gather", "contrib_gqa", "contrib_matmul", "contrib_misc", "contrib_moe", "contrib_places",
        "contrib_quant", "contrib_recurrent", "contrib_router", "contrib_tokens", "conv", "conv_transpose", "deform_conv",
        "grid_sample", "linalg", "linear_attention", "ml_linear", "quantized_matmul", "recurrent", "roi",
    }
)  # fmt: skip
"""Families of the catalogue that compute with BLAS."""
DOTS = frozenset(
    {
        "InstanceNormalization", "LayerNormalization", "ReduceL2", "ReduceSumSquare", "RMSNormalization",
        "SimplifiedLayerNormalization",
    }
)  # fmt: skip
"""Operators whose writing forms take dot products of rows, which BLAS shares out where they are long."""
OBJECTS = frozenset(
    {
        "ArrayFeatureExtractor", "Cast", "CategoryMapper", "ConcatFromSequence", "Equal", "Expand", "Flatten", "Gather",
        "LabelEncoder", "MurmurHash3", "OneHotEncoder", "RegexFullMatch", "Reshape", "Slice", "Split", "SplitToSequence",
        "StringConcat", "StringNormalizer", "StringSplit", "Tile", "Tokenizer", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Operators that have generated code for Python's objects (``kernels.objects``)."""


def operators() -> Iterable[str]:
    """All that the catalogue has entries of."""
    return dict.fromkeys(entry.op_type for entry in catalogue())


def definitions(op_type: str, threads: int | None, generates: bool) -> Iterator[KernelDef]:
    """Those of an operator, of whatever domain; the options are ``registry``'s."""
    for entry in entries(op_type):
        yield _definition(entry, forms(entry.domain, op_type), threads, generates)


def _definition(entry: OpKernel, candidates: Sequence[Form], threads: int | None, generates: bool) -> KernelDef:
    generated = generates and (entry.op_type in OBJECTS or entry.op_type == "Resize")
    create: Callable[..., Any] = _create_generated if generated else _create
    if threads is not None and (entry.function.__module__.rpartition(".")[2] in BLAS or entry.op_type in DOTS):
        create = functools.partial(_create_limited, threads)
    matching = [form for form in candidates if form.since <= entry.until and entry.since <= form.until]
    inplace = sorted({index for form in matching for index in form.inplace})
    return KernelDef(
        entry.domain,
        entry.op_type,
        entry.since,
        functools.partial(create, entry, matching),
        entry.until,
        {name: type_strings(elements) for name, elements in entry.types.items()},
        alias={0: 0} if entry.domain == "" and entry.op_type in ALIASES else {},
        inplace={0: tuple(inplace)} if inplace else {},
    )


def _create_generated(entry: OpKernel, candidates: Sequence[Form], node: NodeView) -> Kernel | Callable[..., Any]:
    if entry.op_type == "Resize":
        from onnxplug_ep_cpu.kernels.resize import resizing

        return resizing(node, _create(entry, candidates, node))
    from onnxplug_ep_cpu.kernels.objects import native

    return native(node, _create(entry, candidates, node))


def _create(entry: OpKernel, candidates: Sequence[Form], node: NodeView) -> Kernel | Callable[..., Any]:
    attributes = dict(node.attributes)
    if entry.prepare is not None:
        return entry.prepare(numpy, **attributes)
    if entry.op_type == "NonMaxSuppression":
        from onnxplug_ep_cpu.kernels.nms import suppression

        return suppression(**attributes)
    counted = {"n_outputs": len(node.outputs)} if _counts_outputs(entry.function) else {}
    function = _with(entry.function, {**attributes, **counted})
    unfit = None
    if (entry.domain, entry.op_type) in RULES:
        unfit = functools.partial(_unfit, entry, attributes)
        function = functools.partial(fitted, entry.domain, entry.op_type, attributes, function)
    form = next((f for f in candidates if f.since <= node.since_version <= f.until), None)
    return function if form is None else NumPyKernel(function, form, attributes, unfit)


def _unfit(entry: OpKernel, attributes: Mapping[str, Any], inputs: Sequence[Any]) -> str | None:
    """Which of the operands, arrays or specs, does not fit the others."""
    shapes = [None if x is None else x.shape for x in inputs]
    return misfit(entry.domain, entry.op_type, shapes, attributes)


def _with(function: Callable[..., Any], attributes: dict[str, Any]) -> functools.partial[Any]:
    """The function for NumPy and a node's attributes. They become the defaults of a function of its own where they can: a call
    that hands on keywords takes some ten times the time of one that does not."""
    code = getattr(function, "__code__", None)
    first = 0 if code is None else code.co_argcount
    if code is None or not attributes.keys() <= set(code.co_varnames[first : first + code.co_kwonlyargcount]):
        return functools.partial(function, numpy, **attributes)
    assert isinstance(function, FunctionType)
    own = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    own.__kwdefaults__ = {**(function.__kwdefaults__ or {}), **attributes}
    return functools.partial(own, numpy)


def _create_limited(threads: int, entry: OpKernel, candidates: Sequence[Form], node: NodeView) -> Kernel:
    return LimitedKernel(_create(entry, candidates, node), threads)


@functools.cache
def _counts_outputs(function: Callable[..., Any]) -> bool:
    return "n_outputs" in inspect.signature(function).parameters
