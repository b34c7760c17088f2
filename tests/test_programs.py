"""Programs written for onnxruntime (``tests/programs``), run with it and with onnxplug in its place: they print the same."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

PROGRAMS = Path(__file__).parent / "programs"
DRAW = np.random.default_rng(7)


def made(text: str, weights: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> ModelProto:
    """A model from its text, with weights that the text names."""
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["": 21]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    helper.set_model_props(proto, metadata or {})
    return proto


def matrix(*shape: int) -> np.ndarray:
    return (DRAW.standard_normal(shape) / math.sqrt(shape[-2])).astype(np.float32)


def encoder() -> ModelProto:
    """Word vectors, one attention with a mask, the mean of what is no padding, scaled to length 1."""
    width, words = 32, 1000
    text = """
        g (int64[batch, length] input_ids, int64[batch, length] attention_mask) => (float[batch, 32] embedding)
        <int64[1] middle = {1}, int64[1] last = {2}, float far = {-10000.0}, float one = {1.0}, float root = {5.656854}> {
            x = Gather (table, input_ids)
            n = LayerNormalization <axis = -1> (x, scale, shift)
            q = MatMul (n, wq)  k = MatMul (n, wk)  v = MatMul (n, wv)
            kt = Transpose <perm = [0, 2, 1]> (k)
            qk = MatMul (q, kt)  s = Div (qk, root)
            keep = Cast <to = 1> (attention_mask)
            drop = Sub (one, keep)  low = Mul (drop, far)  mask = Unsqueeze (low, middle)
            masked = Add (s, mask)  p = Softmax <axis = -1> (masked)
            a = MatMul (p, v)  y = Add (x, a)  g1 = Gelu (y)
            weight = Unsqueeze (keep, last)  w = Mul (g1, weight)
            total = ReduceSum <keepdims = 0> (w, middle)  count = ReduceSum <keepdims = 1> (keep, middle)
            mean = Div (total, count)
            embedding = LpNormalization <axis = -1, p = 2> (mean)
        }"""
    weights = {name: matrix(width, width) for name in ("wq", "wk", "wv")}
    scale = {"scale": np.ones(width, np.float32), "shift": np.zeros(width, np.float32)}
    return made(text, {"table": matrix(words, width) * 30, **weights, **scale}, {"vocabulary": str(words)})


def decoder() -> ModelProto:
    """One layer of attention over a cache that grows."""
    width, vocabulary = 32, 50
    text = """
        g (int64[1, S] token, float[1, 2, P, 16] past_key, float[1, 2, P, 16] past_value)
            => (float[1, S, 50] logits, float[1, 2, T, 16] present_key, float[1, 2, T, 16] present_value)
        <int64[4] split = {0, 0, 2, 16}, int64[3] joined = {0, 0, 32}, int64[1] two = {2}, float quarter = {0.25},
         int64 zero = {0}, float low = {-10000.0}, float none = {0.0}, int64[1] front = {0}, int64 one = {1}> {
            x = Gather (table, token)
            q0 = MatMul (x, wq)  k0 = MatMul (x, wk)  v0 = MatMul (x, wv)
            q1 = Reshape (q0, split)  k1 = Reshape (k0, split)  v1 = Reshape (v0, split)
            q = Transpose <perm = [0, 2, 1, 3]> (q1)
            k = Transpose <perm = [0, 2, 1, 3]> (k1)
            v = Transpose <perm = [0, 2, 1, 3]> (v1)
            present_key = Concat <axis = 2> (past_key, k)
            present_value = Concat <axis = 2> (past_value, v)
            kt = Transpose <perm = [0, 1, 3, 2]> (present_key)
            qk = MatMul (q, kt)  s = Mul (qk, quarter)
            ps = Shape <start = 2, end = 3> (past_key)  ts = Shape <start = 2, end = 3> (present_key)
            past = Squeeze (ps, front)  all = Squeeze (ts, front)
            columns = Range (zero, all, one)  rows0 = Range (past, all, one)
            rows = Unsqueeze (rows0, one1)  later = Greater (columns, rows)
            mask = Where (later, low, none)
            masked = Add (s, mask)  p = Softmax <axis = -1> (masked)
            a = MatMul (p, present_value)
            b = Transpose <perm = [0, 2, 1, 3]> (a)  c = Reshape (b, joined)
            o = MatMul (c, wo)  h = Add (x, o)  t = Tanh (h)
            logits = MatMul (t, head)
        }"""
    weights = {name: matrix(width, width) for name in ("wq", "wk", "wv", "wo")}
    table = {"table": matrix(vocabulary, width) * 8, "head": matrix(width, vocabulary), "one1": np.array([1])}
    return made(text, {**weights, **table})


def detector() -> ModelProto:
    """Two convolutions, a box and three scores for each of 64 places, and the suppression of overlaps."""
    text = """
        g (float[1, 3, 64, 64] image, float[1] threshold)
            => (float[1, 64, 4] boxes, float[1, 3, 64] scores, int64[K, 3] selected)
        <int64[3] flat = {0, 0, 64}, int64[2] parts = {4, 3}, int64[1] most = {5}, float[1] overlap = {0.4},
         float reach = {24.0}> {
            c1 = Conv <strides = [4, 4], kernel_shape = [4, 4]> (image, w1, b1)
            r1 = Relu (c1)
            c2 = Conv <strides = [2, 2], kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r1, w2, b2)
            f = Reshape (c2, flat)
            raw, logits = Split <axis = 1> (f, parts)
            scores = Sigmoid (logits)
            t = Transpose <perm = [0, 2, 1]> (raw)
            u = Tanh (t)  v = Mul (u, reach)
            boxes = Add (v, anchors)
            selected = NonMaxSuppression (boxes, scores, most, overlap, threshold)
        }"""
    y, x = np.mgrid[4:64:8, 4:64:8].reshape(2, 64).astype(np.float32)
    anchors = np.stack([y - 6, x - 6, y + 6, x + 6], axis=1)[None]
    weights = {
        "w1": DRAW.standard_normal((8, 3, 4, 4)).astype(np.float32) / 5,
        "b1": DRAW.standard_normal(8).astype(np.float32) / 5,
        "w2": DRAW.standard_normal((7, 8, 3, 3)).astype(np.float32) / 6,
        "b2": np.zeros(7, np.float32),
        "anchors": anchors.astype(np.float32),
    }
    return made(text, weights, {"names": "{0: 'cat', 1: 'dog', 2: 'cup'}"})


def careful() -> ModelProto:
    """What can fail in a run: an index, and a shape that does not fit."""
    text = """
        g (float[N, 4] x, int64[K] at) => (float[K, 2] y) <int64[2] shape = {4, 2}> {
            r = Reshape (x, shape)
            y = Gather (r, at)
        }"""
    return made(text, {})


def quantizer() -> ModelProto:
    """Layers as they are before anything has made a Gemm of them, and one that is turned."""
    text = """
        g (float[N, 16] x) => (float[N, 4] y) {
            m1 = MatMul (x, w1)  a1 = Add (m1, b1)  r1 = Relu (a1)
            t = Transpose <perm = [1, 0]> (r1)  g2 = Gemm <transA = 1> (t, w2, b2)  r2 = Tanh (g2)
            m3 = MatMul (r2, w3)  y = Add (b3, m3)
        }"""
    weights = {"w1": matrix(16, 24), "w2": matrix(24, 12), "w3": matrix(12, 4)}
    return made(text, {**weights, **{f"b{i}": matrix(1, n)[0] for i, n in ((1, 24), (2, 12), (3, 4))}})


MODELS = {make.__name__: make for make in (encoder, decoder, detector, careful, quantizer)}


def alike(ours: Any, theirs: Any) -> bool:
    """Equal but for the last digits of floats."""
    if isinstance(theirs, float):
        return isinstance(ours, float) and math.isclose(ours, theirs, rel_tol=1e-4, abs_tol=1e-5)
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return list(ours) == list(theirs) and all(alike(ours[key], theirs[key]) for key in theirs)
    return bool(ours == theirs)


def printed(command: list[str], environment: dict[str, str]) -> Any:
    ran = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", MODELS)
def test_a_program_prints_the_same(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path, program = tmp_path / f"{name}.onnx", str(PROGRAMS / f"{name}.py")
    path.write_bytes(MODELS[name]().SerializeToString())
    theirs = printed([program, str(path)], {})
    ours = printed(["-m", "onnxplug.shim", program, str(path)], {})
    assert alike(ours, theirs), f"{ours}\n{theirs}"
