"""Reductions of a stretch of rows, of which data decide where it begins and ends: how many rows it has no shape says, what comes of
them has a shape all the same.

Bodies of loops that go through bags of rows (torch.nn.EmbeddingBag, segments of any kind) are made of such. The rows are those of a
table from one place to another, or those that a list names from one place to another, perhaps times weights.
"""

from __future__ import annotations

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.fuse import Group, Nodes, pattern, readers_of
from onnxplug_ep_cpu.codegen.kernels.stretches import Stretches
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import accept
from onnxplug_ep_cpu.codegen.lower.move import refuse_none
from onnxplug_ep_cpu.codegen.lower.support import ranked
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor

REDUCTIONS = {"ReduceSum": "add", "ReduceMean": "mean", "ReduceMax": "max"}
BLOCK = 4096
"""Elements read for one item, about."""
LONGEST = 4
"""Nodes from the one that cuts rows to the one that reduces them."""


@record(frozen=True, slots=True)
class Stretch:
    """What is reduced how: ``cuts``, the Slices of it, of the same ``start`` and ``end``; rows of ``table``, those that ``indices``
    names where that is given, perhaps times ``weights``. ``nodes``: all that takes part, in order."""

    kind: str
    table: ValueView
    indices: ValueView | None
    weights: ValueView | None
    start: ValueView
    end: ValueView
    nodes: tuple[NodeView, ...]

    def unfit(self) -> str | None:
        """Why no code is generated for it, if that is so."""
        operands = (self.table, {"float32"}, 2), (self.weights, {"float32"}, 1), (self.indices, {"int64"}, 1)
        for reason in (ranked(*operand) for operand in operands):
            if reason is not None:
                return reason
        source = self.table if self.indices is None else self.indices
        sizes = [v.shape[0] for v in (source, self.weights) if v is not None and v.shape]
        return "there is not a weight for each" if len({n for n in sizes if isinstance(n, int)}) > 1 else None

    @property
    def is_alone(self) -> bool:
        """Whether nothing else reads what is made on the way from what cuts rows to what reduces them; as for rows that nothing is done
        to, other reductions may read them too."""
        return len(self.nodes) == 2 or all(
            v is None or len(v.consumers) == 1 for n in self.nodes[:-1] for v in n.outputs
        )

    def is_weighed(self, b: Lowering) -> bool:
        """Whether there is a weight for each of what the stretch is cut of, if there are weights."""
        source = self.table if self.indices is None else self.indices
        return self.weights is None or b.shape(self.weights)[0] == b.shape(source)[0]


def stretch_of(total: NodeView | None) -> Stretch | None:
    """The stretch that a node reduces; None where it does something else."""
    kind = None if total is None or total.domain else REDUCTIONS.get(total.op_type)
    if total is None or kind is None or _axes(total) != [0]:
        return None
    rows, weigh = _weighted(total.inputs[0])
    gather = made_by(rows, "Gather")
    cut = made_by(rows if gather is None else gather.inputs[1], "Slice")
    if cut is None or (gather is not None and gather.attributes.get("axis", 0)):
        return None
    cuts = [cut, *(node for node in weigh if node.op_type == "Slice")]
    places = [_places(node) for node in cuts]
    if places[0] is None or any(other != places[0] for other in places):
        return None
    table = cut.inputs[0] if gather is None else gather.inputs[0]
    indices = None if gather is None else cut.inputs[0]
    weights = cuts[1].inputs[0] if weigh else None
    if table is None:
        return None
    nodes = (cut, *(() if gather is None else (gather,)), *weigh, total)
    return Stretch(kind, table, indices, weights, *places[0], nodes)


def made_by(value: ValueView | None, *operators: str) -> NodeView | None:
    """The node that makes a value, if it is one of these operators."""
    node = None if value is None else value.producer
    return node if node is not None and node.domain == "" and node.op_type in operators else None


def axes_of(node: NodeView) -> list[int] | None:
    """The axes of a node that has them as an attribute or a constant operand."""
    if "axes" in node.attributes:
        return list(node.attributes["axes"])
    value = node.inputs[1] if len(node.inputs) > 1 else None
    return None if value is None or value.constant is None else value.constant.reshape(-1).tolist()


def _axes(node: NodeView) -> list[int] | None:
    """The axes of a reduction of rows, of which there are two."""
    axes = axes_of(node)
    return None if axes is None else [axis % 2 if -2 <= axis < 2 else axis for axis in axes]


def _weighted(rows: ValueView | None) -> tuple[ValueView | None, list[NodeView]]:
    """Rows without the weights that they are multiplied with, and the nodes that do it, one that cuts the weights first."""
    product = made_by(rows, "Mul")
    if product is None:
        return rows, []
    for value, factor in (product.inputs, product.inputs[::-1]):
        column = made_by(factor, "Unsqueeze")
        cut = None if column is None or axes_of(column) != [1] else made_by(column.inputs[0], "Slice")
        if cut is not None and column is not None:
            return value, [cut, column, product]
    return rows, []


def _places(cut: NodeView) -> tuple[ValueView, ValueView] | None:
    """Where a Slice along its first axis begins and ends."""
    inputs = [*cut.inputs, None, None]
    axes, steps = inputs[3], inputs[4]
    if cut.since_version < 10 or (axes is not None and (axes.constant is None or axes.constant.any())):
        return None
    if steps is not None and (steps.constant is None or (steps.constant != 1).any()):
        return None
    start, end = inputs[1:3]
    return None if start is None or end is None else (start, end)


def reduce_stretches(
    b: Lowering, stretch: Stretch, starts: Tensor, ends: Tensor, count: int, out: Tensor, step: int
) -> None:
    """The call that reduces ``count`` stretches, of these starts and ends, to a row each, ``step`` elements apart."""
    table = b.dense(stretch.table)
    indices = None if stretch.indices is None else b.dense(stretch.indices)
    weights = None if stretch.weights is None else b.dense(stretch.weights)
    rows, columns = table.shape
    listed = rows if indices is None else indices.shape[0]
    if listed > 0:
        refuse_none((rows,))
    read = max(1, columns * max(1, listed // max(1, count)))
    block = max(1, BLOCK // read)
    args: list[int | Ref] = [
        out.ref, table.ref, (table if indices is None else indices).ref, starts.ref, ends.ref,
        (table if weights is None else weights).ref, Ref(STATUS_WORD), columns, rows, listed, count, block, 4 * step,
    ]  # fmt: skip
    kernel = Stretches(stretch.kind, indices is not None, weights is not None)
    b.program.call(kernel, args, -(-count // block), count * (5.0 + 0.2 * read))


def _open(stretch: Stretch) -> bool:
    """Whether data decide where the stretch is."""
    return stretch.start.constant is None or stretch.end.constant is None


@accept("Slice")
def _reduces(node: NodeView) -> bool:
    """Whether what a Slice gives goes nowhere but into reductions of what it cuts."""
    (cut,) = node.outputs
    found = () if cut is None else cut.consumers
    if len(found) > 1:
        return all(_is_of(reader, node) and reader.inputs[0] is cut for reader in found)
    for _ in range(LONGEST):
        if len(found) != 1 or _is_of(found[0], node):
            return len(found) == 1
        made = found[0].outputs
        found = made[0].consumers if len(made) == 1 and made[0] is not None else ()
    return False


def _is_of(total: NodeView, cut: NodeView) -> bool:
    """Whether a node reduces a stretch that a Slice cuts."""
    stretch = stretch_of(total)
    return (
        stretch is not None and cut in stretch.nodes and stretch.is_alone and stretch.unfit() is None and _fits(stretch)
    )


def _fits(stretch: Stretch) -> bool:
    """Whether the places may be single elements of a type that kernels read, and the result's shape is known without the rows'."""
    places, (result,) = (stretch.start, stretch.end), stretch.nodes[-1].outputs
    return (
        result is not None
        and result.shape is not None
        and all(isinstance(n, int) for n in result.shape)
        and all(ranked(v, {"int64"}, 1) is None for v in places)
    )


def _match(node: NodeView, nodes: Nodes) -> Group | None:
    stretch = stretch_of(node)
    if stretch is None or stretch.unfit() is not None or not _fits(stretch) or not _open(stretch):
        return None
    own = [made for made in stretch.nodes[:-1] if _inner(nodes, made)]
    if len(own) < len(stretch.nodes) - 1 and not _is_shared(nodes, stretch):
        return None
    (y,) = node.outputs
    assert y is not None

    def lower(b: Lowering) -> bool:
        if b.is_constant(stretch.start) and b.is_constant(stretch.end):
            return False
        if b.shape(stretch.start) != (1,) or b.shape(stretch.end) != (1,) or not stretch.is_weighed(b):
            return False
        reduce_stretches(b, stretch, b.dense(stretch.start), b.dense(stretch.end), 1, b.output(y), 0)
        return True

    return Group((*own, node), lower)


def _is_shared(nodes: Nodes, stretch: Stretch) -> bool:
    """Whether several reductions of the region, and nothing else, read the rows that are cut."""
    (cut, *others), rows = stretch.nodes, stretch.nodes[0].outputs[0]
    if len(others) > 1 or rows is None or nodes.maker(rows, "Slice", readers=len(readers_of(rows))) is None:
        return False
    return _reduces(cut)


def _inner(nodes: Nodes, node: NodeView) -> bool:
    """Whether what a node gives is read by one other of the region, and by nothing else."""
    return nodes.maker(node.outputs[0], node.op_type) is node


for _reduction in REDUCTIONS:
    pattern(_reduction)(_match)
