"""What sessions tell of a value's type: what onnxruntime would. It infers less (nothing of most ``ai.onnx.ml``, nothing of what a Loop
carries) and keeps what the model declares where it infers nothing."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug.contract.types import SequenceType, ValueType
from onnxplug.graph.infer_bodies import Types
from onnxplug.graph.infer_ml import ML
from onnxplug.graph.infer_onnx import INFERRED_AS
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.type_rules import common, contradict, length_of, loosened, merge, spelled, stacked
from onnxplug.graph.value import Value


def told_types(node: Node, inferred: Types, by_onnx: Callable[[Types], Types]) -> Types:
    """What onnxruntime infers of a node's outputs, of which ``inferred`` is known; ``by_onnx`` infers from types of inputs."""
    less = _LESS.get((node.domain, node.op_type))
    if less is not None:
        return less(node, inferred)
    if not node.domain and (node.op_type, node.since_version) in INFERRED_AS:
        return list(map(loosened, inferred))
    behind = any(v is not None and v.told is not None for v in node.inputs)
    if not behind and node.domain != ML:
        return inferred
    if node.schema is None or node.subgraphs:
        return list(map(loosened, inferred)) if behind else inferred
    try:
        return by_onnx([None if v is None else v.told or v.type for v in node.inputs])
    except STATUS_ERRORS:  # of what the model declares, which was not believed
        return list(map(loosened, inferred))


def tell(graph: Graph, value: Value, inferred: ValueType | None, plain: ValueType | None) -> None:
    """Note what is told of a value whose type is still the declared one, from what is inferred and what onnxruntime infers; of
    contradictions there is a remark, as onnxruntime's warning."""
    if value.told is None and plain is inferred and (value.type is None or value.type == plain):
        return  # as nearly always
    declared = value.told or value.type
    if graph.parent is None and contradict(declared, plain):
        remark = (
            f"Error merging shape info for output. '{value.name}' source:{spelled(plain)} target:{spelled(declared)}. Falling back "
            "to lenient merge."
        )
        if remark not in graph.remarks:
            graph.remarks.append(remark)
    told = merge(declared, plain)
    value.told = None if told == merge(value.type, inferred) else told


def _looped(node: Node, inferred: Types) -> Types:
    """Carried values may change their shapes from trip to trip; what is stacked follows from the body as it is declared."""
    carried = len(node.inputs) - 2
    made = node.subgraphs["body"].outputs[1 + carried :]
    return [*map(loosened, inferred[:carried]), *(stacked(v.told or v.type) for v in made)]


def _chosen(node: Node, inferred: Types) -> Types:
    one, other = (node.subgraphs[name].outputs for name in ("then_branch", "else_branch"))
    if all(v.told is None for v in (*one, *other)):
        return inferred
    return [common(a.told or a.type, b.told or b.type) for a, b in zip(one, other, strict=True)]


def _framed(node: Node, inferred: Types) -> Types:
    """Nothing of the frames of a signal whose length is not known."""
    signal = node.inputs[0]
    length = None if signal is None else length_of(signal.told or signal.type, 1)
    return inferred if isinstance(length, int) else list(map(loosened, inferred))


def _mapped(node: Node, inferred: Types) -> Types:
    return [SequenceType(t) if (t := _elements(type_)) is not None else None for type_ in inferred]


def _elements(type_: ValueType | None) -> ValueType | None:
    return loosened(type_.element) if isinstance(type_, SequenceType) else None


_LESS: dict[tuple[str, str], Callable[[Node, Types], Types]] = {
    ("", "If"): _chosen,
    ("", "Loop"): _looped,
    ("", "STFT"): _framed,
    ("", "SequenceMap"): _mapped,
}
