"""One small llama with random weights of 4 bits, as a GGUF file and as the graph that onnxruntime-genai's builder writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ggml_products import BLOCK, stored

EPSILON, BASE = 1e-5, 10000.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a llama."""

    layers: int = 8
    width: int = 1024
    heads: int = 16
    shared: int = 4
    inner: int = 2816
    words: int = 8192
    room: int = 1024

    @property
    def size(self) -> int:
        """Of a head."""
        return self.width // self.heads


@dataclass(frozen=True, slots=True)
class Weights:
    """Codes [n, blocks, 32] and scales [n, blocks], such that code - 8, times its scale, is a weight."""

    codes: np.ndarray
    scales: np.ndarray


@dataclass(frozen=True, slots=True)
class Llama:
    """Weights by the names they have in GGUF files; ``table`` are the rows of words."""

    shape: Shape
    table: np.ndarray
    products: dict[str, Weights]
    norms: dict[str, np.ndarray]


def drawn(shape: Shape) -> Llama:
    """A llama whose numbers stay near one from layer to layer."""
    rng, size = np.random.default_rng(0), shape.size

    def weights(n: int, k: int) -> Weights:
        scales = rng.uniform(0.5, 1.5, (n, k // BLOCK)) / (4.6 * np.sqrt(k))
        return Weights(rng.integers(0, 16, (n, k // BLOCK, BLOCK)).astype(np.uint8), scales.astype(np.float16))

    products, norms = {}, {}
    for i in range(shape.layers):
        for name, n, k in (
            ("attn_q", shape.heads * size, shape.width),
            ("attn_k", shape.shared * size, shape.width),
            ("attn_v", shape.shared * size, shape.width),
            ("attn_output", shape.width, shape.heads * size),
            ("ffn_gate", shape.inner, shape.width),
            ("ffn_up", shape.inner, shape.width),
            ("ffn_down", shape.width, shape.inner),
        ):
            products[f"blk.{i}.{name}"] = weights(n, k)
        for name in ("attn_norm", "ffn_norm"):
            norms[f"blk.{i}.{name}"] = rng.uniform(0.5, 1.5, shape.width).astype(np.float32)
    products["output"] = weights(shape.words, shape.width)
    norms["output_norm"] = rng.uniform(0.5, 1.5, shape.width).astype(np.float32)
    table = rng.standard_normal((shape.words, shape.width)).astype(np.float32)
    return Llama(shape, table, products, norms)


def write_gguf(llama: Llama, path: Path) -> None:
    """The file llama.cpp reads: no vocabulary, rows of queries and keys in the order of its rotation, which turns neighbours."""
    import gguf

    shape, writer = llama.shape, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(shape.room)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.shared)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_dimension_count(shape.size)
    writer.add_rope_freq_base(BASE)
    writer.add_vocab_size(shape.words)
    writer.add_tokenizer_model("no_vocab")
    writer.add_tensor("token_embd.weight", llama.table)
    for name, norm in llama.norms.items():
        writer.add_tensor(f"{name}.weight", norm)
    for name, w in llama.products.items():
        rows = stored(w.codes, w.scales, 4)
        if name.endswith(("attn_q", "attn_k")):
            halves = rows.reshape(-1, 2, shape.size // 2, rows.shape[1])
            rows = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))
        writer.add_tensor(f"{name}.weight", rows, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_onnx(llama: Llama, path: Path, level: int) -> None:
    """The graph: GroupQueryAttention with rotation, MatMulNBits of an accuracy ``level``, caches that present and past may share."""
    shape, nodes, held = llama.shape, [], {}

    def node(op: str, inputs: list[str], *outputs: str, domain: str = "com.microsoft", **given: object) -> str:
        nodes.append(helper.make_node(op, inputs, outputs, f"{op}_{len(nodes)}", domain=domain, **given))
        return outputs[0]

    def product(name: str, x: str) -> str:
        w = llama.products[name]
        n, blocks, _ = w.codes.shape
        held[f"{name}.q"] = w.codes[..., ::2] | w.codes[..., 1::2] << 4
        held[f"{name}.s"] = w.scales.astype(np.float32).reshape(-1)
        given = {"K": blocks * BLOCK, "N": n, "bits": 4, "block_size": BLOCK, "accuracy_level": level}
        return node("MatMulNBits", [x, f"{name}.q", f"{name}.s"], f"{name}.y", **given)

    def added(skip: str, y: str, norm: str) -> tuple[str, str]:
        names = [f"{norm}.y", "", "", f"{norm}.skip"]
        node("SkipSimplifiedLayerNormalization", [skip, y, norm], *names, epsilon=EPSILON)
        return names[0], names[3]

    held["table"], held["one"], held["axis"] = llama.table, np.array([1]), np.array([1])
    held |= llama.norms
    angles = np.outer(np.arange(shape.room), BASE ** (-np.arange(0, shape.size, 2) / shape.size))
    held["cos"], held["sin"] = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    node("ReduceSum", ["attention_mask", "axis"], "seen", domain="")
    node("Sub", ["seen", "one"], "last", domain="")
    lengths = node("Cast", ["last"], "lengths", domain="", to=TensorProto.INT32)
    node("Shape", ["attention_mask"], "extent", domain="")
    node("Gather", ["extent", "axis"], "wide", domain="", axis=0)
    total = node("Cast", ["wide"], "total", domain="", to=TensorProto.INT32)
    skip = node("Gather", ["table", "input_ids"], "rows", domain="")
    norm = node("SimplifiedLayerNormalization", [skip, "blk.0.attn_norm"], "n", domain="", epsilon=EPSILON, axis=-1)
    scale, caches = 1 / np.sqrt(shape.size), []
    for i in range(shape.layers):
        q, k, v = (product(f"blk.{i}.attn_{which}", norm) for which in "qkv")
        past, present = ([f"{when}.{i}.{kind}" for kind in ("key", "value")] for when in ("past_key_values", "present"))
        caches += zip(past, present, strict=True)
        y = node(
            "GroupQueryAttention", [q, k, v, *past, lengths, total, "cos", "sin"], f"a{i}", *present, num_heads=shape.heads,
            kv_num_heads=shape.shared, scale=scale, do_rotary=1, rotary_interleaved=0, local_window_size=-1,
        )  # fmt: skip
        norm, skip = added(skip, product(f"blk.{i}.attn_output", y), f"blk.{i}.ffn_norm")
        gate, up = (product(f"blk.{i}.ffn_{which}", norm) for which in ("gate", "up"))
        node("Sigmoid", [gate], f"g{i}", domain="")
        node("Mul", [gate, f"g{i}"], f"h{i}", domain="")
        y = product(f"blk.{i}.ffn_down", node("Mul", [f"h{i}", up], f"u{i}", domain=""))
        norm, skip = added(skip, y, f"blk.{i + 1}.attn_norm" if i + 1 < shape.layers else "output_norm")
    product("output", norm)
    nodes[-1].output[0] = "logits"
    info = helper.make_tensor_value_info
    inputs = [
        info(name, TensorProto.INT64, ["batch", dim])
        for name, dim in (("input_ids", "rows"), ("attention_mask", "total"))
    ]
    inputs += [info(past, TensorProto.FLOAT, ["batch", shape.shared, "past", shape.size]) for past, _ in caches]
    outputs = [info("logits", TensorProto.FLOAT, ["batch", "rows", shape.words])]
    outputs += [info(present, TensorProto.FLOAT, ["batch", shape.shared, "kept", shape.size]) for _, present in caches]
    tensors = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "llama", inputs, outputs, tensors)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=10), path)
