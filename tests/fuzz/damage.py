"""Models of onnx's own tests with something changed, or fed what they do not expect: each ends in onnxruntime's answer or in an error
of the surface."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper

NUMBERS = (-(2**63), -(2**31), -9, -3, -2, -1, 0, 1, 2, 3, 5, 7, 64, 2**31, 2**40, 2**63 - 1)
FRACTIONS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-30, 1e30, float("nan"), float("inf"), -float("inf"))
LEFT_OUT = ("bernoulli", "image_decoder", "random", "training_dropout", "adagrad", "adam", "momentum", "gradient")
"""Cases that draw numbers, and what onnxruntime does not have."""
NEWEST = 23
"""The newest opset of which onnxruntime has all operators."""
Case = tuple[str, ModelProto, dict[str, Any]]


@functools.cache
def cases() -> tuple[Case, ...]:
    """Name, model and feeds of onnx's tests of operators."""
    from onnx.backend.test.case.node import collect_testcases

    found = []
    for case in collect_testcases(None):
        if any(word in case.name for word in LEFT_OUT) or not case.data_sets:
            continue
        feeds = {i.name: v for i, v in zip(case.model.graph.input, case.data_sets[0][0], strict=False)}
        if all(isinstance(value, np.ndarray | np.generic | int | float) for value in feeds.values()):
            model = _as_old_as_may_be(case.model)
            found.append((case.name, model, {name: np.asarray(value) for name, value in feeds.items()}))
    return tuple(found)


def _as_old_as_may_be(model: ModelProto) -> ModelProto:
    """The model in the format and opset that onnxruntime reads, where its operators are no newer."""
    old = ModelProto()
    old.CopyFrom(model)
    old.ir_version = min(old.ir_version, 10)
    for imported in old.opset_import:
        if not imported.domain and imported.version > NEWEST:
            names = {node.op_type for node in _nodes(old) if not node.domain}
            since = [defs.get_schema(name, imported.version).since_version for name in names if defs.has(name)]
            imported.version = max(NEWEST, *since) if since else NEWEST
    return old


def damaged(chance: random.Random) -> tuple[str, ModelProto, list[dict[str, Any]]]:
    """What was changed, the model, and what to feed it."""
    name, source, feeds = chance.choice(cases())
    model = ModelProto()
    model.CopyFrom(source)
    feeds = dict(feeds)
    done = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        way = chance.choice(WAYS)
        try:
            told = way(chance, model, feeds)
        except (
            ValueError,
            TypeError,
            KeyError,
            OverflowError,
        ) as error:  # an earlier change has nothing to change left
            told = str(error)
        done += [told] if told else []
    return f"{name}: {'; '.join(done)}", model, [feeds]


def _nodes(model: ModelProto) -> list[NodeProto]:
    """Nodes of the graph and of its bodies."""
    found: list[NodeProto] = []

    def collect(graph: GraphProto) -> None:
        for node in graph.node:
            found.append(node)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    collect(attribute.g)

    collect(model.graph)
    return found


def _attribute(chance: random.Random, model: ModelProto, feeds: dict[str, Any]) -> str:
    """Another value of an attribute."""
    node = chance.choice(_nodes(model))
    if not node.attribute:
        return ""
    attribute = chance.choice(node.attribute)
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = chance.choice(NUMBERS)
        case AttributeProto.FLOAT:
            attribute.f = chance.choice(FRACTIONS)
        case AttributeProto.INTS:
            _changed(chance, attribute.ints, NUMBERS)
        case AttributeProto.FLOATS:
            _changed(chance, attribute.floats, FRACTIONS)
        case AttributeProto.STRING:
            attribute.s = chance.choice((b"", b"nonsense", b"SAME_UPPER", b"VALID", b"add", b"mul", b"\xff"))
        case AttributeProto.STRINGS:
            _changed(chance, attribute.strings, (b"", b"nonsense", b"Relu"))
        case AttributeProto.TENSOR:
            return "constant " + _tensor(chance, attribute.t)
        case _:
            return ""
    return f"{node.op_type}.{attribute.name} = {str(helper.get_attribute_value(attribute))[:60]}"


def _changed(chance: random.Random, items: Any, options: Sequence[Any]) -> None:
    match chance.choice(("item", "item", "fewer", "more", "none")):
        case "item" if items:
            items[chance.randrange(len(items))] = chance.choice(options)
        case "fewer" if items:
            del items[chance.randrange(len(items))]
        case "none":
            del items[:]
        case _:
            items.append(chance.choice(options))


def _tensor(chance: random.Random, tensor: TensorProto) -> str:
    """A tensor with something wrong."""
    match chance.choice(("dims", "type", "short", "value", "place")):
        case "dims":
            _changed(chance, tensor.dims, NUMBERS)
        case "type":
            tensor.data_type = chance.randrange(0, 24)
        case "short":
            tensor.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]
        case "place":
            tensor.data_location = TensorProto.EXTERNAL
        case _:
            value = _strange(chance, numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    return f"tensor {tensor.name} {tensor.data_type} {list(tensor.dims)}"


def _unused_attribute(chance: random.Random, model: ModelProto, feeds: dict[str, Any]) -> str:
    """An attribute that the operator has and the node does not say, or one less, or of another type."""
    node = chance.choice(_nodes(model))
    if node.attribute and chance.random() < 0.4:
        gone = node.attribute.pop(chance.randrange(len(node.attribute)))
        return f"{node.op_type} without {gone.name}"
    if node.attribute and chance.random() < 0.3:
        attribute = chance.choice(node.attribute)
        name = attribute.name
        attribute.CopyFrom(helper.make_attribute(name, chance.choice((1, 2.0, "text", [1, 2], [0.5]))))
        return f"{node.op_type}.{name} is {attribute.type}"
    if not defs.has(node.op_type, node.domain):
        return ""
    formals = defs.get_schema(node.op_type, node.domain).attributes
    free = [f for n, f in formals.items() if n not in {a.name for a in node.attribute}]
    if not free:
        return ""
    formal = chance.choice(free)
    values: dict[int, Callable[[], Any]] = {
        AttributeProto.INT: lambda: chance.choice(NUMBERS),
        AttributeProto.FLOAT: lambda: chance.choice(FRACTIONS),
        AttributeProto.INTS: lambda: [chance.choice(NUMBERS[2:-2]) for _ in range(chance.randrange(5))],
        AttributeProto.FLOATS: lambda: [chance.choice(FRACTIONS) for _ in range(chance.randrange(5))],
        AttributeProto.STRING: lambda: chance.choice(("", "nonsense", "linear", "SAME_LOWER")),
        AttributeProto.STRINGS: lambda: [chance.choice(("", "Relu", "Affine")) for _ in range(chance.randrange(3))],
    }
    kind = formal.type.value
    if kind not in values:
        return ""
    value = values[kind]()
    node.attribute.append(helper.make_attribute(formal.name, value, attr_type=kind))
    return f"{node.op_type}.{formal.name} := {value}"


def _operand(chance: random.Random, model: ModelProto, feeds: dict[str, Any]) -> str:
    """An operand more, less, or another one."""
    node = chance.choice(_nodes(model))
    names = [n for each in _nodes(model) for n in (*each.input, *each.output)] + ["", "nobody"]
    names += [i.name for i in model.graph.input]
    side = node.output if chance.random() < 0.2 else node.input
    _changed(chance, side, names)
    return f"{node.op_type}({', '.join(node.input)}) -> {', '.join(node.output)}"


def _operator(chance: random.Random, model: ModelProto, feeds: dict[str, Any]) -> str:
    """Another operator, or of another domain."""
    node = chance.choice(_nodes(model))
    if chance.random() < 0.1:
        node.domain = chance.choice(("nobody", "com.microsoft", "ai.onnx", "ai.onnx.ml", ""))
    else:
        node.op_type = chance.choice(_operators()) if chance.random() < 0.9 else "Nothing"
    return f"{node.domain}.{node.op_type}"


@functools.cache
def _operators() -> tuple[str, ...]:
    return tuple(sorted({s.name for s in defs.get_all_schemas() if not s.domain}))


def _declaration(chance: random.Random, model: ModelProto, feeds: dict[str, Any]) -> str:
    """Another type or shape of an input, an output or a note on a value."""
    infos = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if not infos:
        return ""
    info = chance.choice(infos)
    tensor = info.type.tensor_type
    match chance.choice(("type", "dim", "dim", "name", "noshape", "moredims", "same")):
        case "type":
            tensor.elem_type = chance.choice((1, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 16, 0, 99))
        case "dim" if tensor.shape.dim:
            chance.choice(tensor.shape.dim).dim_value = chance.choice(NUMBERS)
        case "name" if tensor.shape.dim:
            for dim in tensor.shape.dim:
                dim.dim_param = chance.choice(("a", "a", "b", ""))
        case "noshape":
            tensor.ClearField("shape")
        case "moredims":
            tensor.shape.dim.add().dim_value = chance.choice(NUMBERS)
        case _:
            info.name = chance.choice(infos).name
    return f"declared {info.name} {tensor.elem_type} {[d.dim_param or d.dim_value for d in tensor.shape.dim]}"


def _opened(chance: random.Random, model: ModelProto, feeds: dict[str, Any]) -> str:
    """Nothing is declared of any shape, so that only the feeds tell."""
    for info in (*model.graph.input, *model.graph.output):
        for number, dim in enumerate(info.type.tensor_type.shape.dim):
            dim.dim_param = f"{info.name}_{number}"
    return "open shapes"


def _constant(chance: random.Random, model: ModelProto, feeds: dict[str, Any]) -> str:
    """An input that is an initializer instead."""
    if not feeds:
        return ""
    name = chance.choice(sorted(feeds))
    value = feeds.pop(name)
    if not any(i.name == name for i in model.graph.input):
        return ""
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
    kept = [i for i in model.graph.input if i.name != name]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    if chance.random() < 0.3:
        return "initializer " + _tensor(chance, model.graph.initializer[-1])
    return f"{name} is constant"


def _weights(chance: random.Random, model: ModelProto, feeds: dict[str, Any]) -> str:
    """Something wrong with an initializer."""
    return _tensor(chance, chance.choice(model.graph.initializer)) if model.graph.initializer else ""


def _opset(chance: random.Random, model: ModelProto, feeds: dict[str, Any]) -> str:
    imported = chance.choice(model.opset_import)
    imported.version = chance.choice((1, 5, 7, 9, 11, 13, 15, 17, 18, 19, 21, 23, 0, -1, 999))
    return f"{imported.domain or 'onnx'} {imported.version}"


def _fed(chance: random.Random, model: ModelProto, feeds: dict[str, Any]) -> str:
    """Another value of an input."""
    if not feeds:
        return ""
    name = chance.choice(sorted(feeds))
    value = feeds[name]
    if value.dtype == object:
        return ""
    match chance.choice(("value", "value", "value", "shape", "rank", "none", "type")):
        case "value":
            value = _strange(chance, value)
        case "shape" if value.ndim:
            shape = list(value.shape)
            shape[chance.randrange(value.ndim)] = chance.choice((0, 1, 2, 3, 5, 17))
            value = np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)
        case "rank":
            value = value[None] if chance.random() < 0.5 or not value.ndim else value[0] if len(value) else value[None]
        case "type":
            value = value.astype(chance.choice((np.float32, np.int64, np.int32, np.float16, bool)))
        case _:
            value = value[:0] if value.ndim else value
    feeds[name] = np.ascontiguousarray(value).reshape(value.shape)
    return f"fed {name} {value.dtype}{list(value.shape)}"


def _strange(chance: random.Random, value: np.ndarray) -> np.ndarray:
    """Some elements are extreme."""
    value = value.copy()
    if not value.size or value.dtype.kind in "OUSbV":
        return value
    flat = value.reshape(-1)
    for _ in range(chance.choice((1, 2, flat.size))):
        at = chance.randrange(flat.size)
        if value.dtype.kind in "iu":
            info = np.iinfo(value.dtype)
            flat[at] = chance.choice([n for n in (*NUMBERS, int(info.max), int(info.min)) if info.min <= n <= info.max])
        else:
            with np.errstate(all="ignore"):
                flat[at] = chance.choice((*FRACTIONS[:6], 65504.0, 3e-39))
    return value


WAYS = (
    _attribute, _attribute, _attribute, _unused_attribute, _unused_attribute, _operand, _operator, _declaration, _declaration,
    _opened, _constant, _constant, _constant, _weights, _opset, _fed, _fed, _fed,
)  # fmt: skip
