"""Types of what operators with bodies give: the bodies are inferred in place, by ``infer``, and the outputs follow from theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from onnxplug.contract.errors import Fail
from onnxplug.contract.types import TensorType, ValueType
from onnxplug.graph.build import GRADIENT_BODY
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.type_rules import anonymous, common, in_both, length_of, loosened, ranked, sliced, stacked
from onnxplug.graph.value import Value

Types = list[ValueType | None]
Infer = Callable[[Graph], None]
Declared = list[tuple[Value, ValueType | None]]

_COUNTED: Types = [TensorType("int64", ()), TensorType("bool", ())]
"""A trip's number and its condition."""


def if_(node: Node, inputs: Types, infer: Infer) -> Types:
    """What both branches agree on."""
    branches = [node.subgraphs["then_branch"], node.subgraphs["else_branch"]]
    for branch in branches:
        infer(branch)
    pairs = [(a.type, b.type) for a, b in zip(branches[0].outputs, branches[1].outputs, strict=True)]
    for a, b in pairs:
        if isinstance(a, TensorType) and isinstance(b, TensorType) and a.element != b.element:
            raise Fail(f"Node ({node.name}) Op (If) [TypeInferenceError] the branches give {a} and {b}")
    return [common(a, b) for a, b in pairs]


def loop(node: Node, inputs: Types, infer: Infer) -> Types:
    """Carried values keep their sizes where the body, given them, gives them back, else their rank likewise: then every trip
    does."""
    body = node.subgraphs["body"]
    carried = [anonymous(t) for t in inputs[2:]]
    declared = [(value, value.type) for value in _values(body)]
    if len(body.outputs) > 1 + len(carried):  # what is stacked is told as it follows without the carried values' shapes
        for value, type_ in zip(body.inputs[2:], carried, strict=False):
            value.told = value.told or (value.type if value.shape is not None else loosened(type_))
    sized = any(isinstance(t, TensorType) and t.static_shape for t in carried)
    try:
        kept = _kept(body, carried, declared, infer, _COUNTED)
    except Fail:  # of what the first trip is given, if there is one
        if not sized:
            raise
        _restore(declared)
        kept = _kept(body, [ranked(t) for t in carried], declared, infer, _COUNTED)
    outputs: Types = [t or v.type for t, v in zip(kept, body.outputs[1:], strict=False)]
    return outputs + [stacked(v.type) for v in body.outputs[1 + len(carried) :]]


def _kept(
    body: Graph,
    carried: Types,
    declared: Declared,
    infer: Infer,
    before: Types | None = None,
    behind: Sequence[ValueType | None] = (),
) -> Types:
    """The types that carried values have in every trip; the body is inferred for them, with these inputs before and behind them.
    Of a body that counts its trips the first output is the condition."""
    while True:
        _set_inputs(body, [*(before or ()), *carried, *behind])
        infer(body)
        first = 1 if before else 0
        made = [v.type for v in body.outputs[first : first + len(carried)]]
        kept = [in_both(t, m) for t, m in zip(carried, made, strict=False)]
        if kept == carried:
            return carried
        carried = kept
        _restore(declared)  # what followed from a size that is not kept is void


def _restore(declared: Declared) -> None:
    for value, type_ in declared:
        value.type = type_


def _values(graph: Graph) -> Iterator[Value]:
    """The values of a graph and of those nested in it."""
    yield from graph.inputs
    for node in graph.nodes:
        yield from (v for v in node.outputs if v is not None)
        for body in node.subgraphs.values():
            yield from _values(body)


def scan(node: Node, inputs: Types, infer: Infer) -> Types:
    """States keep what every trip gives back of their types; what is stacked is as long as what is scanned."""
    body = node.subgraphs["body"]
    old = node.since_version == 8  # version 8 has a batch axis and a leading sequence_lens input
    given = inputs[1:] if old else inputs
    for index, value in enumerate(node.inputs):
        if value is None and (index > 0 or not old):
            raise Fail(f"Node ({node.name}) Op (Scan) [TypeInferenceError] Scan input {index} was not a tensor.")
    scanned = int(node.attributes["num_scan_inputs"])
    states, moved = given[: len(given) - scanned], given[len(given) - scanned :]
    in_axes = _axes(node, "input", scanned)
    if old:
        states, moved = [sliced(t, 0) for t in states], [sliced(t, 0) for t in moved]
    slices = [sliced(t, axis) for t, axis in zip(moved, in_axes, strict=True)]
    kept = _kept(body, list(states), [(value, value.type) for value in _values(body)], infer, behind=slices)
    made = body.outputs[len(states) :]
    if old:
        batch, trips = (length_of(given[-1], axis) for axis in (0, 1)) if given else (None, None)
        stacks = [stacked(v.type, trips) for v in made]
        return [stacked(t, batch) for t in (*kept, *stacks)]
    out_axes = _axes(node, "output", len(made))
    length = length_of(moved[0], in_axes[0]) if scanned else None
    outputs: Types = [t or v.type for t, v in zip(kept, body.outputs, strict=False)]
    return outputs + [stacked(v.type, length, axis) for v, axis in zip(made, out_axes, strict=True)]


def _axes(node: Node, side: str, count: int) -> Sequence[int]:
    """Which axis of each input is cut into slices, or of each output made of them. Fail where there are more or fewer."""
    axes: Sequence[int] = node.attributes.get(f"scan_{side}_axes") or [0] * count
    if len(axes) != count:
        raise Fail(
            f"Node ({node.name}) Op (Scan) [ShapeInferenceError] Number of scan {side} axes specified ({len(axes)}) is not equal "
            f"to number of scan {side}s ({count})."
        )
    return axes


def gradient(node: Node, inputs: Types, infer: Infer) -> Types:
    """Derivatives are of their variables' types."""
    body = node.subgraphs[GRADIENT_BODY]
    _set_inputs(body, inputs)
    infer(body)
    return inputs[: len(node.outputs)]


def _set_inputs(body: Graph, types: Types) -> None:
    """Give a body's inputs their types. Fail where the body declares other elements."""
    for value, type_ in zip(body.inputs, types, strict=False):
        if isinstance(type_, TensorType) and isinstance(value.type, TensorType) and value.type.element != type_.element:
            node = body.owner
            assert node is not None, "who gives a body its inputs owns it"
            raise Fail(
                f"Node ({node.name}) Op ({node.op_type}) [TypeInferenceError] Graph attribute inferencing failed: "
                f"Tensor element type mismatch: '{value.name}' is {value.type}, it is given {type_}"
            )
        value.type = type_ if type_ is not None else value.type
