"""What nearest neighbours are found with: distances of all pairs, and the best elements of lines."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import GraphView, NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.pairwise import VECTORS
from onnxplug_ep_cpu.codegen.kernels.select import Select, memory
from onnxplug_ep_cpu.codegen.kernels.topk import TopK
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, attributes, axis_of, rank, typed
from onnxplug_ep_cpu.codegen.lower.svm import distances, panels
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref, grab_of
from onnxplug_ep_cpu.codegen.tensor import Tensor

MOST = 128
"""Elements wanted of a line up to which they are held in order while the line is read."""
MOST_WIDE = 512
"""The same of 64 bits, which are not sorted by digits."""
WIDE = frozenset({"int64", "float64"})


def _top_supports(node: NodeView) -> str | None:
    if (reason := typed(node.inputs[0], FLOATS | WIDE | {"int32"})) is not None:
        return reason
    return "its operand is a scalar" if rank(node.inputs[0]) < 1 else None


def _wanted(b: Lowering, node: NodeView) -> int:
    if node.since_version < 10:
        return int(node.attributes["k"])
    (_, value) = node.inputs
    assert value is not None
    numbers = b.numbers(value)
    if numbers is None:
        raise Unsupported(f"'{value.name}' depends on data")
    return numbers[0]


@lowering("TopK", supports=_top_supports)
def top_k(b: Lowering, node: NodeView) -> None:
    """The greatest or smallest elements along an axis, best first, and their places."""
    x, (best, places) = node.inputs[0], [*node.outputs, None][:2]
    assert x is not None
    wanted = _wanted(b, node)
    given = attributes(node, axis=-1, largest=1)
    tensor = b.read(x)
    dims = len(tensor.shape)
    axis = axis_of(given["axis"], dims)
    size = tensor.shape[axis]
    if not 0 <= wanted <= size:
        raise Unsupported(f"{wanted} elements of {size} are wanted")
    if tensor.element in WIDE and wanted > MOST_WIDE:
        raise Unsupported(f"{wanted} elements of 64 bits are wanted")
    order = [*(d for d in range(dims) if d != axis), axis]
    turned = tensor.transposed(order)
    lead = turned.shape[:-1]
    lines = turned.reshaped((math.prod(lead), size))
    if lines is None or (lines.strides[1] != 1 and size > 1):
        lines = b.copied(turned, range(dims)).reshaped((math.prod(lead), size))
    assert lines is not None
    made = b.scratch((*lead, wanted), element=tensor.element), b.scratch((*lead, wanted), element="int64")
    if wanted:
        _best(b, lines, wanted, bool(given["largest"]), *made)
    back = [order.index(d) for d in range(dims)]
    for value, tensor in zip((best, places), made, strict=True):
        if value is not None:
            b.define(value, tensor.transposed(back))


def _best(b: Lowering, lines: Tensor, wanted: int, largest: bool, values: Tensor, places: Tensor) -> None:
    """Append the call that finds them. Insertion takes wanted / 2 steps for each element that is among the best so far, which of
    elements in no order are wanted * log(size / wanted), where the logarithm is hardly above 10; sorting takes a few for every
    element."""
    count, size = lines.shape
    args: list[int | Ref] = [values.ref, places.ref, lines.ref, size, wanted]
    inserting = 5 * wanted * wanted
    sorting = 4 * size + 10000
    wide = lines.element in WIDE
    if wide or (wanted <= MOST and inserting < sorting):
        block = max(1, 4096 // size)
        args += [count, block, lines.itemsize * lines.strides[0]]
        most = 8 if wanted <= 8 else MOST if wanted <= MOST else MOST_WIDE
        b.program.call(TopK(largest, most, lines.element), args, -(-count // block), count * (size // 2 + inserting))
        return
    grab, slot = grab_of(count, b.threads), memory(size)
    room = b.scratch((-(-count // grab) * slot,), element="int8")
    args += [4 * lines.strides[0], room.ref, slot, grab]
    b.program.call(Select(largest, lines.element), args, count, count * sorting)


# ---- distances


def _pairs_support(node: NodeView) -> str | None:
    if node.attributes.get("metric", "sqeuclidean") not in ("sqeuclidean", "euclidean"):
        return f"metric is {node.attributes['metric']!r}"
    values = (*node.inputs, *node.outputs)
    return next((r for v in values if (r := typed(v, {"float32"}))), None) or _two(*node.inputs)


def _two(*values: ValueView | None) -> str | None:
    return None if all(rank(v) == 2 for v in values) else "an operand has not two dimensions"


@lowering("CDist", supports=_pairs_support, domain="com.microsoft")
def cdist(b: Lowering, node: NodeView) -> None:
    """(M, K) distances between the rows of two matrices."""
    (rows, columns), (y,) = node.inputs, node.outputs
    assert rows is not None and columns is not None and y is not None
    root = node.attributes.get("metric", "sqeuclidean") == "euclidean"
    squares = between(b, node, rows, columns)
    b.pend(y, Pending(squares.shape, (("leaf", 0), ("sqrt", 0)) if root else ex.IDENTITY, [squares]))


def between(b: Lowering, node: NodeView, rows: ValueView, columns: ValueView) -> Tensor:
    """(M, K) squared distances."""
    x, known, width = b.read(rows), columns.constant, VECTORS * b.target.lanes
    if x.shape[0] == 0:
        return b.scratch((0, b.shape(columns)[0]))
    if known is not None and known.dtype == np.float32:
        table = b.prepared.table(node, f"panels of {width}", lambda: panels(known, width))
        return distances(b, x, b.read(table), known.shape[0], ex.IDENTITY)
    other = b.read(columns)
    count, size = other.shape
    whole = count // width
    packed = b.scratch((-(-count // width), size, width))
    for first, many, wide in ((0, whole, width), (whole, packed.shape[0] - whole, count % width)):
        shape = (many, size, wide)
        strides = (width * other.strides[0], other.strides[1], other.strides[0])
        source = other.shift(first * width * other.strides[0]).viewed(shape, strides)
        copy(b.program, b.target, source, packed.shift(first * size * width).viewed(shape, packed.strides))
    return distances(b, x, packed, count, ex.IDENTITY)


def _scan_supports(node: NodeView) -> str | None:
    if node.since_version < 9 or len(node.inputs) != 2 or len(node.outputs) != 2 or node.captures:
        return "it is no Scan over rows"
    axes = [*node.attributes.get("scan_input_axes", ()), *node.attributes.get("scan_output_axes", ())]
    turned = [*node.attributes.get("scan_input_directions", ()), *node.attributes.get("scan_output_directions", ())]
    if any(axes) or any(turned) or node.attributes.get("num_scan_inputs") != 1:
        return "it is no Scan over rows"
    if not is_distance(node.subgraphs["body"]):
        return "its body is no distance"
    values = (*node.inputs, *node.outputs)
    return next((r for v in values if (r := typed(v, {"float32"}))), None) or _two(*node.inputs)


def is_distance(body: GraphView) -> bool:
    """Whether a body hands on a matrix and gives the squared distances of its rows to a vector: how skl2onnx writes CDist."""
    if len(body.inputs) != 2 or len(body.outputs) != 2:
        return False
    matrix, vector = body.inputs
    kept, result = (_origin(v) for v in body.outputs)
    total = result.producer
    if kept is not matrix or total is None or total.domain or total.op_type != "ReduceSumSquare":
        return False
    axes = total.attributes.get("axes")
    if axes is None and len(total.inputs) > 1 and total.inputs[1] is not None and total.inputs[1].constant is not None:
        axes = total.inputs[1].constant.reshape(-1).tolist()
    apart = None if total.inputs[0] is None else total.inputs[0].producer
    if axes is None or list(axes) not in ([1], [-1]) or total.attributes.get("keepdims", 1) or apart is None:
        return False
    operands = [None if v is None else _origin(v) for v in apart.inputs]
    return apart.op_type == "Sub" and apart.domain == "" and operands in ([matrix, vector], [vector, matrix])


def _origin(value: ValueView) -> ValueView:
    """The value that Identity nodes hand on."""
    while value.producer is not None and value.producer.op_type == "Identity" and value.producer.domain == "":
        (before,) = value.producer.inputs
        assert before is not None
        value = before
    return value


@lowering("Scan", supports=_scan_supports)
def scan(b: Lowering, node: NodeView) -> None:
    """Squared distances of a matrix' rows (M, F) to each of (K, F), as (K, M)."""
    (matrix, vectors), (kept, y) = node.inputs, node.outputs
    assert matrix is not None and vectors is not None
    if kept is not None:
        b.define(kept, b.read(matrix))
    if y is not None:
        b.define(y, between(b, node, matrix, vectors).transposed((1, 0)))
