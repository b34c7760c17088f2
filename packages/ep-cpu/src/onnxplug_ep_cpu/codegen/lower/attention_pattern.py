"""Attention as exporters write it out, softmax(Q K^T * scale + mask) V: recognised, and given to one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.fuse import Group, Nodes, pattern
from onnxplug_ep_cpu.codegen.lower.attention import Heads, attend, takes
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lower
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.matrices import turned
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, typed
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

_BLANKED: ex.Expr = (("leaf", 0), ("const", 0.0), ("leaf", 1), ("where", 0, 1, 2))


@record(frozen=True, slots=True)
class _Parts:
    """The nodes of an attention: what scales or lays out the operands, the product, what follows it, softmax and
    after."""

    sides: list[NodeView]
    product: NodeView
    between: list[NodeView]
    after: list[NodeView]
    q: ValueView
    k: ValueView
    v: ValueView
    scale: float
    transposed: bool
    """Keys come as [.., depth, keys]."""
    guarded: bool
    blank: ValueView | None
    """Where this is true the weights of a row are zeros."""
    forms: list[tuple[ValueView, str]]
    """Values on the way whose shapes have to be as the names of ``_form`` say."""

    @property
    def nodes(self) -> list[NodeView]:
        return [*self.sides, self.product, *self.between, *self.after]


@pattern("MatMul")
def attention(last: NodeView, within: Nodes) -> Group | None:
    """MatMul(Softmax(... MatMul(q, k) ...), v), with element-wise nodes between that scale and mask the scores; after the
    softmax zeros may replace NaN, as PyTorch exports it, or rows that a mask hides, as ONNX's function bodies have it."""
    parts = None if typed(last.outputs[0]) is not None else _find(last, within)
    if parts is None:
        return None
    reader = within.reader(last.outputs[0], "Transpose")
    order = None if reader is None else reader.attributes.get("perm")
    nodes = tuple(sorted(parts.nodes, key=within.position))
    return Group(nodes, lambda b: _lower(b, parts, nodes, order))


def _find(last: NodeView, within: Nodes) -> _Parts | None:
    after, guarded, blank = [last], False, None
    weights = last.inputs[0]
    guard = within.maker(weights, "Where")
    test = None if guard is None else within.maker(guard.inputs[0], "IsNaN")
    if guard is not None and _number(guard.inputs[1]) != 0.0:
        return None
    if guard is not None and test is not None:
        if guard.inputs[2] is not test.inputs[0]:
            return None
        after, guarded, weights = [test, guard, last], True, test.inputs[0]
    elif guard is not None:
        after, blank, weights = [guard, last], guard.inputs[0], guard.inputs[2]
    softmax = within.maker(weights, "Softmax", readers=2 if guarded else 1)
    if softmax is None or not _along_last(softmax):
        return None
    found = _to_product(softmax.inputs[0], within)
    if found is None:
        return None
    product, between = found
    q, k, v = *product.inputs[:2], last.inputs[1]
    assert q is not None and k is not None and v is not None
    sides: list[NodeView] = []
    forms: list[tuple[ValueView, str]] = []
    scale = product.attributes.get("alpha", 1.0)
    q, factor = _unscaled(q, within, sides)
    scale *= factor
    k, factor = _unscaled(k, within, sides)
    scale *= factor
    transposed = not product.attributes.get("transB", 0)
    if transposed and (source := _turned_back(k, within, sides, forms)) is not None:
        k, transposed = source, False
    if not transposed:
        k = _shared(k, within, sides, forms)
    v = _shared(v, within, sides, forms)
    return _Parts(sides, product, between, [softmax, *after], q, k, v, scale, transposed, guarded, blank, forms)


def _number(value: ValueView | None) -> float | None:
    """The value if it is a constant number."""
    if value is None or value.constant is None or value.constant.size != 1 or value.constant.dtype.name not in FLOATS:
        return None
    return float(value.constant.reshape(-1)[0])


def _along_last(softmax: NodeView) -> bool:
    (x,) = softmax.inputs
    if x is None or x.shape is None or len(x.shape) not in (3, 4):
        return False
    return softmax.attributes.get("axis", -1 if softmax.since_version >= 13 else 1) in (-1, len(x.shape) - 1)


def _to_product(value: ValueView | None, within: Nodes) -> tuple[NodeView, list[NodeView]] | None:
    """The product that the scores come from and the element-wise nodes on the way, first to last."""
    node = within.maker(value, "MatMul") or within.maker(value, "FusedMatMul", domain="com.microsoft")
    if node is not None:
        other = ("transA", "transBatchA", "transBatchB")
        return None if any(node.attributes.get(name, 0) for name in other) else (node, [])
    node = within.maker(value, "Add", "Sub", "Mul", "Div", "Where")
    for operand in () if node is None else node.inputs:
        if node is not None and (found := _to_product(operand, within)) is not None:
            return found[0], [*found[1], node]
    return None


def _unscaled(value: ValueView, within: Nodes, sides: list[NodeView]) -> tuple[ValueView, float]:
    """What is multiplied by a number, and the number."""
    node = within.maker(value, "Mul", "Div")
    if node is None:
        return value, 1.0
    x, y = node.inputs
    if node.op_type == "Mul" and _number(x) is not None:
        x, y = y, x
    factor = _number(y)
    if x is None or not factor or x.shape is None or value.shape is None or len(x.shape) != len(value.shape):
        return value, 1.0
    sides.append(node)
    return x, factor if node.op_type == "Mul" else 1.0 / factor


def _turned_back(
    value: ValueView, within: Nodes, sides: list[NodeView], forms: list[tuple[ValueView, str]]
) -> ValueView | None:
    """The source of Reshape(Transpose(Reshape(source))) that changes its last two of four dimensions about."""
    outer = within.maker(value, "Reshape")
    turn = None if outer is None else within.maker(outer.inputs[0], "Transpose")
    inner = None if turn is None else within.maker(turn.inputs[0], "Reshape")
    if outer is None or turn is None or inner is None or list(turn.attributes.get("perm", ())) != [0, 2, 1]:
        return None
    source, merged = inner.inputs[0], turn.inputs[0]
    if source is None or merged is None or source.shape is None or len(source.shape) != 4:
        return None
    sides += [inner, turn, outer]
    forms += [(source, "heads"), (merged, "merged")]
    return source


def _shared(value: ValueView, within: Nodes, sides: list[NodeView], forms: list[tuple[ValueView, str]]) -> ValueView:
    """The source of Reshape(Expand(Unsqueeze(source))) that repeats each head, or the value."""
    merge = within.maker(value, "Reshape")
    expand = None if merge is None else within.maker(merge.inputs[0], "Expand")
    lift = None if expand is None else within.maker(expand.inputs[0], "Unsqueeze")
    source = None if lift is None else lift.inputs[0]
    if merge is None or expand is None or lift is None or source is None or source.shape is None:
        return value
    if len(source.shape) != 4 or lift.inputs[1] is None or lift.inputs[1].constant is None:
        return value
    if [int(axis) for axis in lift.inputs[1].constant] not in ([2], [-3]):
        return value
    (spread,) = expand.outputs
    assert spread is not None
    sides += [lift, expand, merge]
    forms += [(value, "heads"), (spread, "spread")]
    return source


def _lower(b: Lowering, parts: _Parts, nodes: Sequence[NodeView], order: Sequence[int] | None) -> bool:
    """Attention by its kernel if the shapes suit it; masks the kernel cannot read are applied to written scores."""
    (scores,), (result,) = parts.product.outputs, nodes[-1].outputs
    assert scores is not None and result is not None
    shape = b.shape(scores)
    if not _suits(b, parts, shape):
        return False

    def plain(expr: ex.Expr, leaves: list[Tensor], target: Tensor) -> None:
        for node in (*parts.sides, parts.product):
            lower(b, node)
        write_map(b.program, b.target, expr, [b.read(scores), *leaves], target)

    four = (1,) * (4 - len(shape)) + shape
    b.values[scores.name] = Pending(shape, ex.IDENTITY, [None], plain, lambda leaf: takes(four, leaf))
    for node in parts.between:
        lower(b, node)
    (masked,) = parts.after[0].inputs
    assert masked is not None
    held = b.values[masked.name]
    if not isinstance(held, Pending) or held.anchor is not plain:
        for node in parts.after:
            lower(b, node)
        return True
    build = ex.Build()
    score = build("leaf", 0)
    if parts.scale != 1.0:
        score = build("mul", score, build("const", parts.scale))
    leaves = [leaf for leaf in held.leaves if leaf is not None]
    expr = build.finish(build.include(held.expr, [score, *(build("leaf", 1 + i) for i in range(len(leaves)))]))
    k = turned(b.lies(parts.k), parts.transposed)
    heads = Heads(_four(b.read(parts.q)), _four(k), _four(b.lies(parts.v)))
    if order is not None and order[-1] != len(shape) - 1:
        order = None
    if parts.blank is None:
        attend(b, heads, _four(b.output(result, order)), expr, leaves, parts.guarded)
        return True
    made = b.scratch(b.shape(result), order)
    attend(b, heads, _four(made), expr, leaves)
    b.pend(result, Pending(made.shape, _BLANKED, [b.read(parts.blank), made]))
    return True


def _suits(b: Lowering, parts: _Parts, shape: Ints) -> bool:
    """Whether the operands' shapes are those of heads, and what lies between them and the product moves nothing
    else."""
    *_, given = parts.after[-1].inputs
    assert given is not None
    q, v = b.shape(parts.q), b.shape(parts.v)
    k = b.shape(parts.k)
    if not len(q) == len(k) == len(v) == len(shape) or 0 in (*q, *k, *v):
        return False
    if parts.transposed:
        k = (*k[:-2], k[-1], k[-2])
    heads, shared, keys = shape[-3], k[-3], shape[-1]
    if (
        q[:-1] != shape[:-1]
        or q[-1] != k[-1]
        or k[-2] != keys
        or heads % shared
        or k[:-1] != v[:-1]
        or k[:-3] != q[:-3]
    ):
        return False
    if parts.blank is not None and b.shape(parts.blank)[-1:] not in ((), (1,)):
        return False
    full = b.shape(given)
    return full[:-1] == (*shape[:-2], keys) and all(_form(b.shape(x), shape, shared) == name for x, name in parts.forms)


def _form(found: Ints, scores: Ints, shared: int) -> str:
    """What a shape of keys or values is: "heads", "merged" (with the batch) or "spread" (each repeated)."""
    batch, heads, _, keys = scores
    forms = {
        "heads": (batch, heads, keys),
        "merged": (batch * heads, keys),
        "spread": (batch, shared, heads // shared, keys),
    }
    return next((name for name, form in forms.items() if found[:-1] == form), "")


def _four(tensor: Tensor) -> Tensor:
    """Heads without a batch are a batch of one."""
    if len(tensor.shape) == 4:
        return tensor
    return Tensor(tensor.buffer, (1, *tensor.shape), (0, *tensor.strides), tensor.offset, tensor.element)
