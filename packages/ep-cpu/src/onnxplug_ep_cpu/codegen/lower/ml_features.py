"""Feature preparation of ``ai.onnx.ml`` over numbers (kernels with the same names: ``onnxplug_kernels.ops.ml_features``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.elementwise import merged
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import no_zeros, write_map
from onnxplug_ep_cpu.codegen.lower.ml_scores import FEATURES, ML
from onnxplug_ep_cpu.codegen.lower.move import columns, gathered
from onnxplug_ep_cpu.codegen.lower.numbered import spell, word_numbers
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.reduce import reduced
from onnxplug_ep_cpu.codegen.lower.support import attributes, rank, require, typed, width_of
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor
from onnxplug_ep_cpu.codegen.words import numbered


def _typed(node: NodeView) -> str | None:
    return typed(node.inputs[0], FEATURES) or ("its operand is a scalar" if rank(node.inputs[0]) < 1 else None)


def _per_feature(node: NodeView, size: int | None, *names: str) -> str | None:
    """Attributes that have one value, or one for each of ``size`` features (None: not known yet)."""
    for name in names:
        count = len(node.attributes.get(name, ()))
        if count != 1 and count != size and (size is not None or not count):
            return f"{name} has {count} values for {size} features"
    return None


def _scaler_supports(node: NodeView) -> str | None:
    return _typed(node) or _per_feature(node, width_of(node.inputs[0]), "offset", "scale")


@lowering("Scaler", supports=_scaler_supports, domain=ML)
def scaler(b: Lowering, node: NodeView) -> None:
    """(x - offset) * scale."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    require(_per_feature(node, b.shape(x)[-1], "offset", "scale"))
    tables = [
        b.prepared.table(node, name, partial(np.asarray, node.attributes[name], np.float32))
        for name in ("offset", "scale")
    ]
    build = ex.Build()
    centred = build("sub", build("to_float32", build("leaf", 0)), build("leaf", 1))
    expr = build.finish(build("mul", centred, build("leaf", 2)))
    b.pend(y, merged(b, b.shape(y), expr, [x, *tables]))


def _imputer_supports(node: NodeView) -> str | None:
    floating = typed(node.inputs[0]) is None
    name = "imputed_value_floats" if floating else "imputed_value_int64s"
    size = width_of(node.inputs[0])
    return typed(node.inputs[0], {"float32", "int64"}) or _typed(node) or _per_feature(node, size, name)


@lowering("Imputer", supports=_imputer_supports, domain=ML)
def imputer(b: Lowering, node: NodeView) -> None:
    """x with one value, which may be NaN, replaced."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    given = attributes(node, replaced_value_float=0.0, replaced_value_int64=0)
    floating = b.element(x) == "float32"
    replaced = given["replaced_value_float" if floating else "replaced_value_int64"]
    name = "imputed_value_floats" if floating else "imputed_value_int64s"
    require(_per_feature(node, b.shape(x)[-1], name))
    values = given[name]
    table = b.prepared.table(node, "imputed", lambda: np.asarray(values, np.float32 if floating else np.int64))
    build = ex.Build()
    element = build("leaf", 0)
    if replaced != replaced:
        missing = build("isnan", element)
    else:
        missing = build("equal", element, build("const" if floating else "int64", replaced))
    pending = merged(b, b.shape(y), build.finish(build("where", missing, build("leaf", 1), element)), [x, table])
    pending.element = b.element(y)
    b.pend(y, pending)


@lowering("Binarizer", supports=lambda node: typed(node.inputs[0]) or _typed(node), domain=ML)
def binarizer(b: Lowering, node: NodeView) -> None:
    """1 above the threshold, else 0."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    build = ex.Build()
    threshold = build("const", attributes(node, threshold=0.0)["threshold"])
    expr = build.finish(build("to_float32", build("greater", build("leaf", 0), threshold)))
    b.pend(y, merged(b, b.shape(y), expr, [x]))


def _normalizer_supports(node: NodeView) -> str | None:
    norm = node.attributes.get("norm", "MAX")
    return _typed(node) or (None if norm in ("MAX", "L1", "L2") else f"norm is {norm!r}")


@lowering("Normalizer", supports=_normalizer_supports, domain=ML)
def normalizer(b: Lowering, node: NodeView) -> None:
    """Rows divided by their maximum, L1 or L2 norm; those whose divisor is zero stay."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    norm, shape = attributes(node, norm="MAX")["norm"], b.shape(y)
    if 0 in shape:
        b.define(y, b.scratch(shape))
        return
    tensor = b.read(x)
    build = ex.Build()
    value = build("to_float32", build("leaf", 0))
    part = {"MAX": lambda: value, "L1": lambda: build("abs", value), "L2": lambda: build("mul", value, value)}[norm]()
    kind = "max" if norm == "MAX" else "add"
    divisor = reduced(b, kind, build.finish(part), [tensor], shape, [len(shape) - 1], "float32")
    build = ex.Build()
    value, size = build("to_float32", build("leaf", 0)), build("leaf", 1)
    size = build("sqrt", size) if norm == "L2" else size
    none = build("equal", size, build("const", 0.0))
    expr = build.finish(build("div", value, build("where", none, build("const", 1.0), size)))
    b.pend(y, Pending(shape, expr, [tensor, divisor]))


def _extractor_supports(node: NodeView) -> str | None:
    x, index = node.inputs
    words = x is not None and x.constant is not None and x.dtype == object and rank(x) == 1
    if rank(x) < 1:
        return typed(x, SIZES) or "its operand is a scalar"
    return (None if words else typed(x, SIZES)) or typed(index, {"int64"})


@lowering("ArrayFeatureExtractor", supports=_extractor_supports, domain=ML)
def array_feature_extractor(b: Lowering, node: NodeView) -> None:
    """Elements of the last axis; of a constant list of strings their places."""
    (x, index), (y,) = node.inputs, node.outputs
    assert x is not None and index is not None and y is not None
    known = b.constant(index)
    if x.dtype == object and x.constant is not None:
        _spelled(b, node)
        return
    tensor, shape = b.read(x), b.shape(y)
    size, step = tensor.shape[-1], tensor.strides[-1]
    wanted = None if known is None else known.reshape(-1)
    if wanted is not None and len(wanted) and 0 <= wanted[0] < size:
        apart = int(wanted[1] - wanted[0]) if len(wanted) > 1 else 1
        even = len(wanted) < 2 or bool((np.diff(wanted) == apart).all())
        if even and apart > 0 and wanted[-1] < size:
            lead = tensor.strides[:-1] if len(tensor.shape) > 1 else (0,)
            b.define(y, tensor.shift(int(wanted[0]) * step).viewed(shape, (*lead, apart * step)))
            return
        if len(tensor.shape) > 1 and columns(b, y, tensor, [int(place) for place in wanted]):
            return
    rows = b.dense(x)
    outer, count = math.prod(rows.shape[:-1]), shape[-1]
    made = b.output(y, element=rows.element)
    out = made if made.is_dense else b.scratch(shape, element=rows.element)
    data = rows.viewed((outer, size, 1), (size, 1, 1))
    flat = b.dense(index).viewed((count,), (1,))
    gathered(b, out, data, flat, (size,), (1,), negative=False)
    b.values[y.name] = out


def _spelled(b: Lowering, node: NodeView) -> None:
    """Places in a constant list of strings, checked by looking up a list of numbers."""
    (x, index), (y,) = node.inputs, node.outputs
    assert x is not None and x.constant is not None and index is not None and y is not None
    words = x.constant.tolist()
    flat = b.dense(index)
    table = b.read(b.prepared.table(node, "places", lambda: np.arange(len(words))))
    out = b.scratch((1, flat.size), element="int64")
    data = table.viewed((1, len(words), 1), (0, 1, 1))
    gathered(b, out, data, flat.viewed((flat.size,), (1,)), (len(words),), (1,), negative=False)
    spell(b, y, out, words)


def _vectorizer_supports(node: NodeView) -> str | None:
    widths = node.attributes.get("inputdimensions", ())
    if widths and len(widths) < len(node.inputs):
        return f"there are {len(widths)} inputdimensions for {len(node.inputs)} inputs"
    if any(width < 0 for width in widths):
        return f"inputdimensions are {list(widths)}"
    for value in node.inputs:
        if rank(value) not in (1, 2):
            return typed(value, FEATURES) or "an operand is neither rows nor one row"
    return next((r for v in node.inputs if (r := typed(v, FEATURES))), None)


@lowering("FeatureVectorizer", supports=_vectorizer_supports, domain=ML)
def feature_vectorizer(b: Lowering, node: NodeView) -> None:
    """Inputs side by side, each cut or filled with zeros to its width."""
    (y,) = node.outputs
    assert y is not None
    shape = b.shape(y)
    out = b.output(y)
    widths = node.attributes.get("inputdimensions", ()) or [None] * len(node.inputs)
    start = 0
    for value, wanted in zip(node.inputs, widths, strict=False):
        assert value is not None
        tensor = b.read(value)
        if len(tensor.shape) == 1:
            tensor = tensor.viewed((1, *tensor.shape), (0, *tensor.strides))
        if tensor.shape[0] != shape[0]:
            raise Unsupported(f"there are {tensor.shape[0]} and {shape[0]} rows")
        width = tensor.shape[1] if wanted is None else int(wanted)
        taken = min(width, tensor.shape[1])
        place = out.shift(start)
        source = tensor.viewed((shape[0], taken), tensor.strides)
        write_map(b.program, b.target, _AS_FLOAT, [source], _part(place, shape[0], taken))
        write_map(b.program, b.target, _ZERO, [], _part(place.shift(taken), shape[0], width - taken))
        start += width


_AS_FLOAT: ex.Expr = (("leaf", 0), ("to_float32", 0))
_ZERO: ex.Expr = (("const", 0.0),)


def _part(place: Tensor, rows: int, columns: int) -> Tensor:
    return place.viewed((rows, columns), place.strides)


def _encoder_supports(node: NodeView) -> str | None:
    x, name = node.inputs[0], "cats_int64s"
    if x is not None and x.dtype == object:
        x, name = None, "cats_strings"
    return typed(x, FEATURES) or _categories(node.attributes.get(name, ()))


def _categories(given: Sequence[Any]) -> str | None:
    return None if given else "there are no categories"


@lowering("OneHotEncoder", supports=_encoder_supports, domain=ML)
def one_hot_encoder(b: Lowering, node: NodeView) -> None:
    """1 at the place of each element's category, along a new last axis."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    numbers = word_numbers(b, x) if x.dtype == object else None

    def categories_of() -> np.ndarray:
        if numbers is None:
            return np.array(node.attributes["cats_int64s"], np.int64)
        return numbered(node.attributes["cats_strings"], numbers)

    categories = b.read(b.prepared.table(node, "categories", categories_of))
    tensor = b.read(x)
    if not node.attributes.get("zeros", 1):
        _each_in_one(b, b.dense(x), categories)
    column = tensor.viewed((*tensor.shape, 1), (*tensor.strides, 0))
    build = ex.Build()
    hit = build("equal", build("to_int64", build("leaf", 0)), build("leaf", 1))
    b.pend(y, Pending(b.shape(y), build.finish(build("to_float32", hit)), [column, categories]))


def _each_in_one(b: Lowering, given: Tensor, categories: Tensor) -> None:
    """See to it that an element in no category is found: NumPy's kernel then says so."""
    count, size = categories.size, given.size
    build = ex.Build()
    hit = build("equal", build("to_int64", build("leaf", 0)), build("leaf", 1))
    found = build.finish(build("to_int32", hit))
    leaves = [given.viewed((1, size), (0, 1)), categories.viewed((count, 1), (1, 0))]
    no_zeros(b.program, reduced(b, "max", found, leaves, (count, size), [0], "int32"))
