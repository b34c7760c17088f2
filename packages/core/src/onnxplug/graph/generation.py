"""Nodes that generate text: which subgraphs they hold, and in which order a subgraph takes and gives its tensors.

onnxruntime's ``GreedySearch``, ``Sampling``, ``BeamSearch`` and ``WhisperBeamSearch`` (domain ``com.microsoft``), which
``onnxruntime.transformers.convert_generation`` writes. Orders are those of its ContribOperators.md and of that converter; names of
inputs say nothing here, since those of nested graphs are made unique. B is batch size times beams:

* decoder of GPT-2: tokens, positions (B, length), mask (B, total), a past (2, B, heads, past, size) for each layer; it gives logits
  (B, length, vocabulary) and a present for each layer;
* encoder of T5: tokens, mask (batch, source), and tokens (batch, start) that decoding starts with; it gives logits, what is encoded, keys
  and values (batch, heads, start, size) of each layer, then those (batch, heads, source, size) of attention to the source. One that takes
  no start gives these last alone;
* decoder of T5: tokens, mask, perhaps what is encoded, keys and values as above; it gives logits and new keys and values of its own;
* Whisper's: likewise without masks, and sound instead of the source's tokens.

What follows a decoder's past: ``past_sequence_length``, where past and present are one buffer, and ``beam_width`` and
``cache_indirection``, which tell whose past a beam has.
"""

from __future__ import annotations

from typing import Any

from onnxplug.contract.errors import Fail
from onnxplug.contract.records import record
from onnxplug.contract.types import TensorType, ValueType
from onnxplug.graph.ir import Node
from onnxplug.graph.value import Value

GPT, T5, WHISPER = range(3)
"""Attribute ``model_type``."""
_MODELS = ("GPT-2", "T5", "Whisper")
_MODEL_TYPES = {"BeamSearch": (GPT, T5, WHISPER), "WhisperBeamSearch": (WHISPER,)}
_OWN_PAST = {GPT: 3, T5: 2, WHISPER: 1}
"""How many inputs of a decoder stand before its past, without what is encoded."""
_STATES = {GPT: (1, 1), T5: (2, 4), WHISPER: (2, 4)}
"""Presents and pasts of a layer."""
_EXTRAS = (0, 1, 3)


@record(frozen=True, slots=True)
class Layout:
    """How a node's decoder is fed. ``first``: its first past; ``extras``: 0, 1 or 3 tensors behind the pasts;
    ``encoded``: whether it is given what was encoded; ``whole``: whether it is given all tokens each time, not the last; ``starts``:
    whether the encoder decodes the start; ``crossed``: whether it gives the products of queries and the source's keys."""

    model: int
    layers: int
    first: int
    extras: int
    heads: int
    size: int
    element: str
    vocabulary: int | None
    encoded: bool
    whole: bool
    starts: bool
    crossed: bool


def layout_of(node: Node) -> Layout:
    """The node's layout. Fail where its subgraphs have another number of tensors than its model has, or other ranks."""
    default = WHISPER if node.op_type == "WhisperBeamSearch" else GPT
    model = node.attributes.get("model_type", default)
    if model not in _MODEL_TYPES.get(node.op_type, (GPT,)):
        raise _refused(node, f"has no model_type {model}")
    if model != GPT and "encoder" not in node.subgraphs:
        raise _refused(node, f"needs an encoder for model_type {model}")
    decoder, crossed = node.subgraphs["decoder"], bool(node.attributes.get("decoder_output_cross_qk", 0))
    presents, pasts = _STATES[model]
    layers, odd = divmod(len(decoder.outputs) - 1, presents + crossed)
    first = _OWN_PAST[model]
    encoded = model != GPT and len(decoder.inputs) > first and _rank(decoder.inputs[first]) == 3
    first += encoded
    extras = len(decoder.inputs) - first - pasts * layers
    if odd or layers < 1 or extras not in _EXTRAS:
        raise _refused(node, f"has a decoder of {len(decoder.inputs)} inputs and {len(decoder.outputs)} outputs", model)
    past = decoder.inputs[first].type
    shape = past.shape if isinstance(past, TensorType) else None
    heads, size = (
        (shape[-3], shape[-1]) if shape is not None and len(shape) == (5 if model == GPT else 4) else (None,) * 2
    )
    if not isinstance(past, TensorType) or not isinstance(heads, int) or not isinstance(size, int):
        raise _refused(
            node, f"has a decoder whose past is declared {past}{shape}: heads and their size must be told", model
        )
    starts = model != GPT and len(node.subgraphs["encoder"].inputs) == _OWN_PAST[model] + 1
    tokens, logits = _shape(decoder.inputs[0]), _shape(decoder.outputs[0])
    told = node.attributes.get("vocab_size", -1)
    vocabulary = told if told > 0 else logits[-1] if logits else None
    layout = Layout(
        model, layers, first, extras, heads, size, past.element,
        vocabulary if isinstance(vocabulary, int) else None, encoded, bool(tokens and tokens[-1] != 1), starts, crossed,
    )  # fmt: skip
    _check(node, layout)
    return layout


def _check(node: Node, layout: Layout) -> None:
    model = layout.model
    wanted: dict[str, tuple[int, int]] = {}
    if model == GPT:
        decoder = node.subgraphs["decoder"]
        wanted["init_decoder"] = (len(decoder.inputs), len(decoder.outputs))
    else:
        crossed = 2 * layout.layers
        wanted["encoder"] = (_OWN_PAST[model] + layout.starts, 2 + 2 * crossed if layout.starts else crossed)
    for name, counts in wanted.items():
        body = node.subgraphs.get(name)
        if body is not None and (len(body.inputs), len(body.outputs)) != counts:
            given = f"{len(body.inputs)} inputs and {len(body.outputs)} outputs"
            raise _refused(node, f"has an {name} of {given}, its decoder asks for {counts[0]} and {counts[1]}", model)
    if layout.encoded and not layout.starts:
        raise _refused(node, "has a decoder that asks for what is encoded, which its encoder does not give", model)
    for name in ("pad_token_id", "eos_token_id"):
        if node.attributes.get(name, -1) < 0 and "Beam" in node.op_type:
            raise _refused(node, f"has {name} {node.attributes.get(name)}")


def generated(node: Node, inputs: list[ValueType | None], infer: Any) -> list[ValueType | None]:
    """Types of the outputs: tokens (batch, [returned,] length), then scores."""
    for body in node.subgraphs.values():
        infer(body)
    source = inputs[0].shape if isinstance(inputs[0], TensorType) else None
    batch = source[0] if source else None
    beams = "Beam" in node.op_type
    scored = next((t.element for t in inputs[5:7] if beams and isinstance(t, TensorType)), "float")
    tokens = TensorType("int32", (batch, None, None) if beams else (batch, None))
    made: list[ValueType | None] = [tokens, TensorType("float", (batch, None))]
    if not beams:
        return made[: len(node.outputs)]
    made = [
        tokens,
        TensorType(scored, (batch, None)),
        TensorType(scored, (None, batch, None, None)),
        TensorType("float", (batch, None, None, None, None)),
        TensorType(scored, (batch,)),
    ]
    return made[: len(node.outputs)]


def _shape(value: Value) -> Any:
    return value.type.shape if isinstance(value.type, TensorType) else None


def _rank(value: Value) -> int | None:
    shape = _shape(value)
    return None if shape is None else len(shape)


def _refused(node: Node, why: str, model: int | None = None) -> Exception:
    of = "" if model is None else f" of {_MODELS[model]}"
    return Fail(f"This is an invalid model. Node ({node.name}) Op ({node.op_type}){of} {why}")
