"""Shapes of a node's outputs when a run finds them, by onnx's own inference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from onnx import AttributeProto, TensorProto, TypeProto, defs, helper, numpy_helper, shape_inference

from onnxplug.contract import Fail, TensorSpec, ValueView, element_of, fits
from onnxplug.contract.types import ELEMENT_CODES
from onnxplug_ep_opencl.contrib_shapes import contrib_specs
from onnxplug_ep_opencl.quantized_shapes import quantized_shape
from onnxplug_ep_opencl.unknown_shapes import FAILING, UNKNOWN_TO_ONNX, misfit
from onnxplug_kernels.refusals import FAIL, INVALID_ARGUMENT, Refusal, braced
from onnxplug_kernels.windows import windows

_BY_BROADCAST = frozenset({"LessOrEqual", "GreaterOrEqual", "GroupNormalization"})
"""Operators with versions that onnx cannot infer, being functions: their output has the shape of their operands, broadcast."""
CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "FusedConv", "QLinearConv"})
"""Operators that must have a window along every axis of an image."""
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
"""Operators of which onnx counts other windows than they have, with ceil_mode."""
_TURNED = frozenset({"QLinearAveragePool", "QLinearConv"})
"""Operators of one image that may have its channels last."""


class Written(Protocol):
    """What shapes follow from of a node, beside its inputs' specs."""

    @property
    def name(self) -> str: ...
    @property
    def op_type(self) -> str: ...
    @property
    def domain(self) -> str: ...
    @property
    def since_version(self) -> int: ...
    @property
    def attributes(self) -> Mapping[str, Any]: ...
    @property
    def outputs(self) -> Sequence[ValueView | None]: ...


def require_windows(x: Sequence[int], made: Sequence[int]) -> None:
    """Refusal for an image in which no window of a convolution lies, as its result of shape ``made`` shows."""
    if min(made[2:], default=1) < 1:
        raise Refusal(f"Invalid input shape: {braced(x[2:])}", INVALID_ARGUMENT)


def output_specs(node: Written, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec | None]:
    """The outputs' specs, from the inputs' and the values of those that are constant. Fail where they do not follow from these, Refusal
    where the operands do not go together: kernels read and write by what they are told here."""
    try:
        return _specs(node, inputs)
    except ValueError as error:  # which the core tells with the node's name, where the node is one of several too
        error.node = node  # type: ignore[attr-defined]
        raise


def _specs(node: Written, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec | None]:
    shapes = [None if spec is None else spec.shape for spec in inputs]
    if not fits(node, shapes):
        raise misfit(node.op_type, shapes)
    if node.op_type in _BY_BROADCAST:
        return [_broadcast(node, inputs)]
    if node.op_type == "Dropout" and node.since_version < 10:  # whose mask onnx leaves without a type and a shape
        return [None if value is None else inputs[0] for value in node.outputs]
    if node.op_type == "Transpose" and shapes[0] == ():  # onnx leaves a scalar's result without a shape
        return [inputs[0]]
    if node.op_type == "MaxUnpool" and inputs[2:] and inputs[2] is not None and inputs[2].constant is not None:
        assert inputs[0] is not None  # onnx does not read the third operand, which is the shape
        return [TensorSpec(inputs[0].dtype, tuple(int(n) for n in inputs[2].constant.reshape(-1)))]
    if node.domain == "com.microsoft" or node.op_type == "SimplifiedLayerNormalization":  # no schema of onnx
        return _contrib(node, inputs)
    if node.op_type in _POOLS:
        return _pooled(node, inputs)
    if (node.op_type, node.since_version < 10) in UNKNOWN_TO_ONNX:
        return [UNKNOWN_TO_ONNX[node.op_type, node.since_version < 10](node.attributes, inputs)]
    schema = defs.get_schema(node.op_type, node.since_version, node.domain)
    names = [f"x{n}" if spec is not None else "" for n, spec in enumerate(inputs)]
    # Outputs that nobody asks for have names too: not all operators may omit them.
    outs = [f"y{n}" for n in range(len(node.outputs))]
    proto = helper.make_node(node.op_type, names, outs, node.name, domain=node.domain)
    proto.attribute.extend(_attributes(node, schema))
    given = {name: spec for name, spec in zip(names, inputs, strict=True) if spec is not None}
    if node.op_type == "Range":  # whose inference wants scalars, where kernels also take tensors of one element
        narrow = inputs[0] is not None and inputs[0].dtype == np.int16  # whose limits it does not read
        given = {name: _scalar(_whole(spec) if narrow else spec) for name, spec in given.items()}
    elif node.op_type == "Pad" and "x3" in given:  # whose inference reads axes in int64 only
        given["x3"] = _whole(given["x3"])
    types = {name: _type(spec) for name, spec in given.items()}
    data = {n: numpy_helper.from_array(s.constant, n) for n, s in given.items() if s.constant is not None}
    opsets = [helper.make_opsetid(node.domain, node.since_version)]
    try:
        found = shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=opsets, ir_version=10)
    except Exception as error:  # whatever onnx's C++ raises: the operands do not fit
        status = FAIL if node.op_type in FAILING else None
        raise Refusal(f"shapes of the operands do not fit: {error}", status) from error
    first = next((shape for shape in shapes if shape is not None), ())
    specs = [
        None if v is None else _spec(node, found.get(name), first) for v, name in zip(node.outputs, outs, strict=True)
    ]
    if node.op_type == "Range":
        return [TensorSpec(inputs[0].dtype, s.shape) for s in specs if s is not None and inputs[0] is not None]
    return specs


def _pooled(node: Written, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec | None]:
    """Of pooling, whose windows are those of the kernels; MaxPool's second output are the places of the largest."""
    (x, *_), given = inputs, node.attributes
    assert x is not None
    names = ("strides", "dilations", "pads", "auto_pad")
    placed = {name: given[name] for name in names if name in given}
    moves = windows(x.shape[2:], given["kernel_shape"], ceil_mode=given.get("ceil_mode", 0), **placed)
    shape = (*x.shape[:2], *moves.output)
    specs = TensorSpec(x.dtype, shape), TensorSpec(np.dtype(np.int64), shape)
    return [None if made is None else spec for made, spec in zip(node.outputs, specs, strict=False)]


@dataclass(frozen=True)
class _Plain:
    """The operator of ONNX that a fused one begins with."""

    op_type: str
    since_version: int
    attributes: Mapping[str, Any]
    outputs: Sequence[ValueView | None]
    name: str
    domain: str = ""


def _contrib(node: Written, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec | None]:
    """Of operators that onnx does not know."""
    if node.op_type == "NhwcMaxPool" or (node.op_type in _TURNED and node.attributes.get("channels_last", 0)):
        return _turned(node, inputs)
    if node.op_type == "QLinearConv":
        return output_specs(_Plain("QLinearConv", 10, node.attributes, node.outputs, node.name), inputs)
    quantized = quantized_shape(node.op_type, node.attributes, inputs)
    specs = contrib_specs(node.op_type, node.attributes, inputs)
    if quantized is not None:
        made = node.outputs[0]
        assert made is not None and made.dtype is not None
        return [TensorSpec(made.dtype, quantized)]
    if specs is not None:
        return [None if value is None else spec for value, spec in zip(node.outputs, specs, strict=False)]
    plain = {"FusedConv": ("Conv", 11), "FusedGemm": ("Gemm", 13)}.get(node.op_type)
    if plain is not None:
        kept = {n: a for n, a in node.attributes.items() if not n.startswith("activation")}
        return output_specs(_Plain(*plain, kept, node.outputs, node.name), inputs[:3])
    x, y = inputs[0], inputs[1] if len(inputs) > 1 else None
    assert x is not None
    floats = {"QLinearAveragePool": ("AveragePool", 11), "QLinearReduceMean": ("ReduceMean", 13)}.get(node.op_type)
    if floats is not None:
        kept = {n: a for n, a in node.attributes.items() if n != "channels_last"}
        whole = TensorSpec(np.dtype(np.float32), x.shape)
        (found,) = output_specs(_Plain(*floats, kept, node.outputs, node.name), [whole])
        return [None if found is None else TensorSpec(x.dtype, found.shape)]
    if node.op_type == "GridSample":
        assert y is not None
        return [TensorSpec(x.dtype, (*x.shape[:2], *y.shape[1:-1]))]
    if node.op_type in ("FusedMatMul", "TransposeMatMul"):
        assert y is not None
        a, b = (
            (*s.shape[:-2], *(s.shape[:-3:-1] if node.attributes.get(t, 0) else s.shape[-2:]))
            for s, t in ((x, "transA"), (y, "transB"))
        )
        if a[-1] != b[-2]:
            raise misfit(node.op_type, [x.shape, y.shape])
        return [TensorSpec(x.dtype, (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]))]
    if node.op_type == "GroupQueryAttention":
        return _grouped(node, inputs)
    whole, line = TensorSpec(x.dtype, x.shape), TensorSpec(np.dtype(np.float32), (*x.shape[:-1], 1))
    return [None if v is None else (whole, line, line, whole)[n] for n, v in enumerate(node.outputs)]


def _turned(node: Written, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec | None]:
    """Of one image with its channels last."""
    x, kept = inputs[0], {n: a for n, a in node.attributes.items() if n != "channels_last"}
    assert x is not None
    kind = ("MaxPool", 12, "") if node.op_type == "NhwcMaxPool" else (node.op_type, 1, node.domain)
    plain = _Plain(*kind[:2], kept, node.outputs, node.name, kind[2])
    (made,) = output_specs(plain, [TensorSpec(x.dtype, channels_second(x.shape)), *inputs[1:]])
    assert made is not None
    return [TensorSpec(made.dtype, (made.shape[0], *made.shape[2:], made.shape[1]))]


def channels_second(shape: Sequence[int]) -> tuple[int, ...]:
    """Extents, or strides, with the last one behind the first."""
    return (shape[0], shape[-1], *shape[1:-1])


def _grouped(node: Written, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec | None]:
    """Of GroupQueryAttention: the result, and both caches, which grow to the total length where there is less room."""
    query, _, value, past, _, _, total, *_ = inputs
    assert query is not None and total is not None and total.constant is not None
    heads, kv_heads = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    size = query.shape[2] // (heads + 2 * kv_heads if value is None else heads)
    value_size = size if value is None else value.shape[2] // kv_heads
    room = max(int(total.constant.reshape(-1)[0]), 0 if past is None else past.shape[2])
    shapes = [
        (*query.shape[:2], heads * value_size),
        *((query.shape[0], kv_heads, room, n) for n in (size, value_size)),
    ]
    return [
        None if made is None else TensorSpec(query.dtype, shape)
        for made, shape in zip(node.outputs, shapes, strict=False)
    ]


def _broadcast(node: Written, inputs: Sequence[TensorSpec | None]) -> TensorSpec:
    given = [spec.shape for spec in inputs if spec is not None]
    made = node.outputs[0]
    assert made is not None and made.dtype is not None
    if node.op_type == "GroupNormalization":  # scale and bias lie along the channels
        return TensorSpec(made.dtype, given[0])
    return TensorSpec(made.dtype, np.broadcast_shapes(*given))


def _scalar(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(spec.dtype, (), None if spec.constant is None else spec.constant.reshape(()))


def _whole(spec: TensorSpec) -> TensorSpec:
    constant = None if spec.constant is None else spec.constant.astype(np.int64)
    return TensorSpec(np.dtype(np.int64), spec.shape, constant)


def _attributes(node: Written, schema: defs.OpSchema) -> Iterator[AttributeProto]:
    for name, value in node.attributes.items():
        kind: Any = schema.attributes[name].type if name in schema.attributes else None  # no elements tell none
        yield helper.make_attribute(
            name, numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value, attr_type=kind
        )
    if node.op_type == "STFT" and "onesided" not in node.attributes:  # onnx infers with 0, its schema's default is 1
        yield helper.make_attribute("onesided", 1)


def _type(spec: TensorSpec) -> TypeProto:
    return helper.make_tensor_type_proto(ELEMENT_CODES[element_of(spec.dtype)], spec.shape)


def _spec(node: Written, type_: TypeProto | None, x: Sequence[int]) -> TensorSpec:
    dims = None if type_ is None or not type_.tensor_type.HasField("shape") else type_.tensor_type.shape.dim
    if dims is None or any(not d.HasField("dim_value") for d in dims):
        raise Fail(f"The output shape of {node.op_type} '{node.name}' does not follow from its operands")
    assert type_ is not None
    shape = tuple(d.dim_value for d in dims)
    if node.op_type in CONVOLUTIONS:
        require_windows(x, shape)
    if any(n < 0 for n in shape):
        raise Refusal(f"an output of shape {list(shape)}")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type or TensorProto.FLOAT))
    return TensorSpec(dtype, shape)
