"""Small random models whose one node generates text, in the layouts that onnxruntime.transformers.convert_generation writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

MS = "com.microsoft"
HEADS, SIZE, VOCABULARY, PLACES, LAYERS, CHANNELS = 2, 4, 17, 40, 2, 6
WIDTH = HEADS * SIZE
I32, F32 = TensorProto.INT32, TensorProto.FLOAT


class Weights:
    """Initializers of random numbers, one for each name."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._tensors: dict[str, TensorProto] = {}

    def __call__(self, name: str, *shape: int, scale: float = 1.0) -> str:
        array = (scale * self._rng.normal(size=shape)).astype(np.float32)
        self._tensors.setdefault(name, numpy_helper.from_array(array, name))
        return name

    def taken(self) -> list[TensorProto]:
        """Those named so far, which are no longer kept here."""
        made, self._tensors = list(self._tensors.values()), {}
        return made


def tensor(name: str, code: int, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, code, shape)


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, inputs, outputs, domain=domain, **attributes)


def gpt_decoder(w: Weights, name: str = "decoder", shared: bool = False) -> GraphProto:
    """GPT-2: past (2, batch, heads, length, size) of each layer. ``shared``: past and present are one buffer, of which
    ``past_sequence_length`` tokens are filled. Weights are those of the graph around it."""
    nodes = [
        node("Gather", [w("words", VOCABULARY, WIDTH), "input_ids"], ["word"]),
        node("Gather", [w("places", PLACES, WIDTH, scale=0.3), "position_ids"], ["place"]),
        node("Add", ["word", "place"], ["x0"]),
    ]
    for layer in range(LAYERS):
        qkv, bias = w(f"qkv{layer}", WIDTH, 3 * WIDTH, scale=0.5), w(f"bias{layer}", 3 * WIDTH)
        operands = [f"x{layer}", qkv, bias, "attention_mask", f"past_{layer}"]
        operands += ["", "past_sequence_length"] if shared else []
        made = [f"attended{layer}", f"present_{layer}"]
        more = {"past_present_share_buffer": 1} if shared else {}
        nodes.append(node("Attention", operands, made, MS, num_heads=HEADS, unidirectional=1, **more))
        nodes.append(node("Add", [f"x{layer}", f"attended{layer}"], [f"x{layer + 1}"]))
    nodes.append(node("MatMul", [f"x{LAYERS}", w("head", WIDTH, VOCABULARY, scale=0.4)], ["logits"]))
    inputs = [tensor(name, I32, "batch", "length") for name in ("input_ids", "position_ids")]
    inputs.append(tensor("attention_mask", I32, "batch", "total"))
    inputs += [tensor(f"past_{i}", F32, 2, "batch", HEADS, "past", SIZE) for i in range(LAYERS)]
    inputs += [tensor("past_sequence_length", I32, 1)] if shared else []
    outputs = [tensor("logits", F32, "batch", "length", VOCABULARY)]
    outputs += [tensor(f"present_{i}", F32, 2, "batch", HEADS, "whole", SIZE) for i in range(LAYERS)]
    return helper.make_graph(nodes, name, inputs, outputs)


def encoder(w: Weights, audio: bool = False, starts: bool = True) -> GraphProto:
    """Of T5, or of Whisper where ``audio``: it decodes the start too, unless not ``starts``."""
    if audio:
        nodes = [
            node("Transpose", ["encoder_input_ids"], ["frames"], perm=[0, 2, 1]),
            node("MatMul", ["frames", w("filters", CHANNELS, WIDTH, scale=0.3)], ["encoder_hidden_states"]),
        ]
        inputs = [tensor("encoder_input_ids", F32, "batch", CHANNELS, "source")]
    else:
        nodes = [node("Gather", [w("words", VOCABULARY, WIDTH), "encoder_input_ids"], ["encoder_hidden_states"])]
        inputs = [tensor(f"encoder_{name}", I32, "batch", "source") for name in ("input_ids", "attention_mask")]
    hidden = [tensor("encoder_hidden_states", F32, "batch", "source", WIDTH)]
    for layer in range(LAYERS):
        for part in ("key", "value"):
            flat, split, made = (f"{kind}_{part}_{layer}" for kind in ("flat", "split", "present"))
            nodes += [
                node("MatMul", ["encoder_hidden_states", w(f"cross_{part}{layer}", WIDTH, WIDTH, scale=0.5)], [flat]),
                node("Reshape", [flat, "by_heads"], [split]),
                node("Transpose", [split], [made.replace(f"_{layer}", f"_cross_{layer}")], perm=[0, 2, 1, 3]),
            ]
    by_heads = numpy_helper.from_array(np.array([0, 0, HEADS, SIZE]), "by_heads")
    crossed = _states("present", "cross", "source")
    if not starts:
        return helper.make_graph(nodes, "encoder", inputs, crossed, initializer=[by_heads])
    inputs.append(tensor("decoder_input_ids", I32, "batch", "start"))
    nodes += _decoding(w, "decoder_input_ids", "", "present", masked=not audio)
    outputs = [tensor("logits", F32, "batch", "start", VOCABULARY), *hidden]
    outputs += [*_states("present", "self", "start"), *crossed]
    return helper.make_graph(nodes, "encoder", inputs, outputs, initializer=[by_heads])


def decoder(
    w: Weights,
    audio: bool = False,
    hidden: bool = True,
    whole: bool = False,
    shared: bool = False,
    crossed: bool = False,
) -> GraphProto:
    """Of T5, or of Whisper where ``audio``. ``hidden``: it is given what was encoded, though it reads its keys and values alone;
    ``whole``: it is given all tokens so far each time, not the last of them; ``shared``: past and present are one buffer, in which a
    beam may have another's past; ``crossed``: it gives the products of queries and what was encoded."""
    inputs = [tensor("input_ids", I32, "batch", "length" if whole else 1)]
    inputs += [] if audio else [tensor("encoder_attention_mask", I32, "batch", "source")]
    inputs += [tensor("encoder_hidden_states", F32, "batch", "source", WIDTH)] if hidden else []
    inputs += [*_states("past", "self", "past"), *_states("past", "cross", "source")]
    if shared:
        inputs += [tensor("past_sequence_length", I32, 1), tensor("beam_width", I32, 1)]
        inputs.append(tensor("cache_indirection", I32, "prompts", "beams", "room"))
    outputs = [tensor("logits", F32, "batch", 1, VOCABULARY), *_states("present", "self", "total")]
    last = [node("Gather", ["input_ids", "end"], ["token"], axis=1)] if whole else []
    nodes = [*last, *_decoding(w, "token" if whole else "input_ids", "past", "past", masked=not audio, shared=shared)]
    end = [numpy_helper.from_array(np.array([-1]), "end")] if whole else []
    if crossed:
        end.append(numpy_helper.from_array(np.array([0, 0, HEADS, SIZE]), "heads_of_queries"))
    for layer in range(LAYERS if crossed else 0):
        nodes += [
            node("Reshape", [f"cross_q{layer}", "heads_of_queries"], [f"queries{layer}"]),
            node("Transpose", [f"queries{layer}"], [f"queries_by_head{layer}"], perm=[0, 2, 1, 3]),
            node("Transpose", [f"past_key_cross_{layer}"], [f"keys_across{layer}"], perm=[0, 1, 3, 2]),
            node("MatMul", [f"queries_by_head{layer}", f"keys_across{layer}"], [f"output_cross_qk_{layer}"]),
        ]
        outputs.append(tensor(f"output_cross_qk_{layer}", F32, "batch", HEADS, 1, "source"))
    return helper.make_graph(nodes, "decoder", inputs, outputs, initializer=end)


def _decoding(w: Weights, ids: str, past: str, cross: str, masked: bool, shared: bool = False) -> list[NodeProto]:
    """From tokens to logits, through layers that attend to themselves and to what was encoded."""
    before = [node("Shape", ["past_key_self_0"], ["room"], start=2, end=3), node("Squeeze", ["room"], ["known"])]
    if shared:
        before = [node("Cast", ["past_sequence_length"], ["room"], to=7), node("Squeeze", ["room"], ["known"])]
    buffer = ["past_sequence_length", "beam_width", "cache_indirection"]
    nodes = [
        *(before if past else [node("Constant", [], ["known"], value_int=0)]),
        node("Shape", [ids], ["sizes"], start=1, end=2),
        node("Squeeze", ["sizes"], ["length"]),
        node("Add", ["known", "length"], ["behind"]),
        node("Constant", [], ["step"], value_int=1),
        node("Range", ["known", "behind", "step"], ["at"]),
        node("Gather", [w("places", PLACES, WIDTH, scale=0.3), "at"], ["place"]),
        node("Gather", [w("words", VOCABULARY, WIDTH), ids], ["word"]),
        node("Add", ["word", "place"], ["d0"]),
    ]
    common = {"domain": MS, "num_heads": HEADS}
    for layer in range(LAYERS):
        for part in ("q", "k", "v", "cross_q"):
            source = f"{'m' if part == 'cross_q' else 'd'}{layer}"
            product = node("MatMul", [source, w(f"w_{part}{layer}", WIDTH, WIDTH, scale=0.3)], [f"{part}{layer}"])
            nodes.append(product)
            if part == "v":
                pasts = [f"{past}_{kind}_self_{layer}" for kind in ("key", "value")]
                behind = [*[""] * (2 if shared else 3), *pasts, *(buffer if shared else [])] if past else []
                made = [f"a{layer}", *(f"present_{kind}_self_{layer}" for kind in ("key", "value"))]
                own = [f"q{layer}", f"k{layer}", f"v{layer}", *behind]
                op_type = "DecoderMaskedMultiHeadAttention" if shared else "MultiHeadAttention"
                told = {"past_present_share_buffer": 1} if shared else {"unidirectional": 1}
                nodes.append(node(op_type, own, made, **told, **common))
                nodes.append(node("Add", [f"d{layer}", f"a{layer}"], [f"m{layer}"]))
        keys = [f"{cross}_{kind}_cross_{layer}" for kind in ("key", "value")]
        operands = [f"cross_q{layer}", *keys, *(["", "encoder_attention_mask"] if masked else [])]
        nodes.append(node("MultiHeadAttention", operands, [f"c{layer}"], **common))
        nodes.append(node("Add", [f"m{layer}", f"c{layer}"], [f"d{layer + 1}"]))
    nodes.append(node("MatMul", [f"d{LAYERS}", w("head", WIDTH, VOCABULARY, scale=0.4)], ["logits"]))
    return nodes


def _states(prefix: str, kind: str, length: str) -> list[Any]:
    return [
        tensor(f"{prefix}_{part}_{kind}_{layer}", F32, "batch", HEADS, length, SIZE)
        for layer in range(LAYERS)
        for part in ("key", "value")
    ]


INPUTS = {
    "GreedySearch": (
        "input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask",
        "attention_mask",
    ),
    "Sampling": (
        "input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask",
        "attention_mask", "presence_mask", "seed",
    ),
    "BeamSearch": (
        "input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty",
        "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "decoder_input_ids",
        "logits_processor",
    ),
    "WhisperBeamSearch": (
        "input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty",
        "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "decoder_input_ids",
        "logits_processor", "cross_qk_layer_head", "extra_decoding_ids", "temperature",
    ),
}  # fmt: skip
OUTPUTS = {
    "GreedySearch": ("sequences",),
    "Sampling": ("sequences", "filtered_logits"),
    "BeamSearch": ("sequences", "sequences_scores", "scores"),
    "WhisperBeamSearch": ("sequences", "sequences_scores", "scores", "cross_qk", "non_speech_probs"),
}


def generating(
    op_type: str,
    graphs: Mapping[str, GraphProto],
    weights: Weights,
    feeds: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    **attributes: Any,
) -> bytes:
    """A model of one such node, of the inputs that are fed and the outputs named; weights lie beside it."""
    given = [name if name in feeds else "" for name in INPUTS[op_type]]
    while not given[-1]:
        given.pop()
    asked = [name if name in outputs else "" for name in OUTPUTS[op_type]]
    while not asked[-1]:
        asked.pop()
    made = node(op_type, given, asked, MS, **graphs, **attributes)
    graph = helper.make_graph(
        [made],
        op_type,
        [
            tensor(name, helper.np_dtype_to_tensor_dtype(x.dtype), *[f"{name}_{axis}" for axis in range(x.ndim)])
            for name, x in feeds.items()
        ],
        [tensor(name, I32 if name == "sequences" else F32, *_RANKS[name]) for name in outputs],
        initializer=weights.taken(),
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


_RANKS: dict[str, tuple[str, ...]] = {
    "sequences": ("b", "r", "l"),
    "sequences_scores": ("b", "r"),
    "scores": ("t", "b", "n", "v"),
    "filtered_logits": ("b", "v"),
    "cross_qk": ("b", "r", "h", "t", "f"),
    "non_speech_probs": ("b",),
}
