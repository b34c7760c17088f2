"""Operators of com.microsoft that onnxruntime's releases lack on a processor, whole or in part, and that ONNX's own would take pages to
say: worked out in double precision, a row and a token at a time, by onnxruntime's text of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxplug.contract import numpy_dtype
from onnxplug.contract.types import ELEMENT_NAMES
from onnxplug_testkit.kernels.sparse import dense

Attributes = Mapping[str, Any]
Given = Sequence[Any]
"""Inputs in their types, None for those left out."""


class Worked:
    """A session of one such node, in the form oracles are called."""

    def __init__(self, made: onnx.ModelProto) -> None:
        graph, node = made.graph, made.graph.node[0]
        self._work, self._inputs, self._outputs = _WORK[node.op_type], list(node.input), list(node.output)
        self._attributes = {a.name: _plain(helper.get_attribute_value(a)) for a in node.attribute}
        self._held = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self._types = {v.name: numpy_dtype(ELEMENT_NAMES[v.type.tensor_type.elem_type]) for v in graph.output}

    @staticmethod
    def takes(made: onnx.ModelProto) -> bool:
        """Whether the node is one of these."""
        node = made.graph.node[0]
        told = {a.name: a.i for a in node.attribute}
        if node.op_type == "MoE" and not told.get("use_sparse_mixer"):
            return False  # onnxruntime computes it but for the sparse mixer, which its kernel ignores
        return node.domain == "com.microsoft" and node.op_type in _WORK and told.get("packed_type", 8) in _FORMATS

    def run(self, names: None, feeds: Mapping[str, Any]) -> list[Any]:
        """The results, as a session gives them."""
        there = {**self._held, **feeds}
        given = [there.get(name) for name in (*self._inputs, *[""] * 12)]
        with np.errstate(over="ignore"):
            made = zip(self._outputs, self._work(given, self._attributes), strict=False)
            return [value.astype(self._types[name]) for name, value in made if name]


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _wide(value: Any) -> Any:
    return value.astype(np.float64)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _swiglu(given: Given, told: Attributes) -> list[Any]:
    """gate * sigmoid(alpha * gate) * (up + beta), both within the limit; the first product rounded if so told."""
    gate, up = given[:2] if given[1] is not None else np.split(given[0], 2, axis=-1)
    dtype, gate, up, limit = gate.dtype, _wide(gate), _wide(up), told.get("limit", 0.0)
    if limit > 0:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    opened = gate * _sigmoid(told.get("activation_alpha", 1.0) * gate)
    if told.get("round_activation", 0):
        opened = _wide(opened.astype(dtype))
    return [opened * (up + told.get("activation_beta", 0.0))]


def _conv(given: Given, told: Attributes) -> list[Any]:
    """y[t] = sum over j of w[j] * x[t - (k - 1 - j) * dilation] within each sequence, whose past is its state."""
    x, weight, ends, bias, state, counts = given[:6]
    dilation, capacity, taps = told.get("dilation", 1), told.get("state_update_capacity", 0), weight.shape[2]
    made, states, updates = [], [], np.zeros((len(state), capacity, x.shape[1]))
    for row, (start, stop) in enumerate(itertools.pairwise(ends)):
        seen = np.concatenate([state[row].T, x[start:stop]])
        for t in range(stop - start):
            made.append(sum(_wide(weight[:, 0, j]) * _wide(seen[t + j * dilation]) for j in range(taps)))
        states.append(seen[stop - start :].T)
        if capacity:
            count = min(int(counts[row]), capacity, stop - start)
            updates[row, :count] = x[start : start + count]
    y = np.stack(made) + (0 if bias is None else _wide(bias))
    return [y * _sigmoid(y) if told.get("activation", "none") != "none" else y, np.stack(states), updates]


def _delta(given: Given, told: Attributes) -> list[Any]:
    """For each token S *= exp(g); d = beta * (v - S k); S += d k^T; y = scale * S q, with a matrix S for each sequence and head."""
    query, key, value, ends, decay, beta, state, a_log, dt_bias, counts, active = given[:11]
    if told.get("update_rule", "gated_delta") != "gated_delta":
        raise ValueError("not known here")
    leading, (heads, size), (value_heads, value_size) = query.shape[:-2], key.shape[-2:], value.shape[-2:]
    tokens, capacity = math.prod(leading), told.get("state_update_capacity", 0)
    q, k = (_wide(x).reshape(tokens, heads, size) for x in (query, key))
    if told.get("qk_l2_norm", 0):
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-12) for x in (q, k))
    v, rates = _wide(value).reshape(tokens, value_heads, value_size), _wide(beta).reshape(tokens, value_heads)
    if told.get("beta_activation", "none") == "sigmoid":
        rates = _sigmoid(rates)
    gates = _wide(decay).reshape(tokens, value_heads, -1)
    gate = told.get("gate_activation", "none")
    if gate in ("softplus", "qwen"):
        gates = -np.exp(_wide(a_log))[:, None] * np.log1p(np.exp(gates + _wide(dt_bias).reshape(value_heads, -1)))
    elif gate != "none":
        steep = np.exp(_wide(a_log))[:, None] * (gates + _wide(dt_bias).reshape(value_heads, -1))
        gates = told.get("gate_lower_bound", -5.0) * _sigmoid(steep)
    ends = range(0, tokens + 1, leading[-1]) if ends is None else ends
    scale, shared = told.get("scale", 0.0) or size**-0.5, value_heads // heads
    matrices = np.zeros((len(ends) - 1, value_heads, value_size, size)) if state is None else _wide(state)
    made, updates = np.zeros((tokens, value_heads, value_size)), []
    for row, (start, stop) in enumerate(itertools.pairwise(ends)):
        kept = [np.zeros((capacity, n)) for n in (gates[0].size, heads * size, value_heads * value_size)]
        count = 0 if counts is None or (active is not None and not active[0]) else int(counts[row])
        for t in range(start, stop):
            learned = np.zeros((value_heads, value_size))
            for head in range(value_heads):
                matrix, k_head = matrices[row, head], k[t, head // shared]
                matrix *= np.exp(gates[t, head])
                learned[head] = rates[t, head] * (v[t, head] - matrix @ k_head)
                matrix += np.outer(learned[head], k_head)
                made[t, head] = scale * matrix @ q[t, head // shared]
            if t - start < min(count, capacity):
                for part, what in zip(kept, (np.exp(gates[t]), k[t], learned), strict=True):
                    part[t - start] = what.ravel()
        updates.append(np.concatenate([part.ravel() for part in kept]))
    return [made.reshape(*leading, value_heads, value_size), matrices, np.stack(updates)]


def _router(given: Given, told: Attributes) -> list[Any]:
    """log(sigmoid) of the logits of the best experts of the best groups; or all sigmoids, with the bias and without it."""
    logits, bias, projection = given[:3]
    rows = _wide(logits).reshape(-1, logits.shape[-1])
    if projection is not None:
        rows = rows @ _wide(projection).T
    weights = _sigmoid(rows)
    scores = weights + _wide(bias)
    probabilities = np.full(scores.shape, told.get("router_sentinel", -10000.0))
    groups = np.split(np.arange(bias.size), told.get("n_group", 1))
    for row, each in enumerate(scores):
        strength = [np.sort(each[group])[::-1][: told.get("group_topk", 2)].sum() for group in groups]
        best = np.argsort(strength)[::-1][: told.get("topk_group", 1)]
        among = np.concatenate([groups[i] for i in best])
        chosen = among[np.argsort(each[among])[::-1][: told["top_k"]]]
        probabilities[row, chosen] = np.log(weights[row, chosen])
    return [probabilities, scores, weights]


def _sparse_mixture(given: Given, told: Attributes) -> list[Any]:
    """Each pick is the best score left; its share is its softmax among those left that are within 2 percent of it."""
    x, logits, first, first_bias, second, second_bias, third = given[:7]
    if told.get("activation_type", "relu") != "relu" or third is not None:
        raise ValueError("not known here")

    def layer(row: Any, weights: Any, bias: Any, expert: int) -> Any:
        return _wide(weights[expert]) @ row + (0 if bias is None else _wide(bias[expert]))

    made = np.zeros((len(logits), x.shape[-1]))
    for i, (row, scores) in enumerate(zip(_wide(x).reshape(made.shape), _wide(logits), strict=True)):
        left = dict(enumerate(scores))
        for _ in range(told.get("k", 1)):
            pick = max(left, key=left.__getitem__)
            best = left[pick]
            near = [s for s in left.values() if best - s <= 0.02 * max(abs(s), best)]
            share = 1 / sum(math.exp(s - best) for s in near)
            hidden = np.maximum(layer(row, first, first_bias, pick), 0)
            made[i] += share * layer(hidden, second, second_bias, pick)
            del left[pick]
    return [made.reshape(x.shape)]


def _q4(block: np.ndarray) -> Any:
    """A float16, then low halves of 16 bytes and high ones, less 8."""
    return _half(block) * (_wide(np.concatenate([block[2:] & 15, block[2:] >> 4])) - 8)


def _q8(block: np.ndarray) -> Any:
    """A float16, then 32 signed bytes."""
    return _half(block) * _wide(block[2:].view(np.int8))


def _half(block: np.ndarray) -> Any:
    return np.float64(block[:2].copy().view(np.float16)[0])


_FORMATS: Mapping[int, tuple[int, Callable[[np.ndarray], Any]]] = {2: (18, _q4), 8: (34, _q8)}
"""ggml's number of a format -> the bytes of a block of 32, and what they say."""


def _unpacked(table: np.ndarray, told: Attributes) -> Any:
    width, numbers = _FORMATS[told["packed_type"]]
    return np.array([np.concatenate([numbers(block) for block in row.reshape(-1, width)]) for row in table])


def _gather(given: Given, told: Attributes) -> list[Any]:
    """Rows of the table; the first where there is none."""
    table, indices = _unpacked(given[0], told), given[1].astype(np.int64)
    return [table[np.where((indices < 0) | (indices >= len(table)), 0, indices)]]


def _product(given: Given, told: Attributes) -> list[Any]:
    """Times the rows in A's type; result and activation are rounded to it."""
    a, table = given[:2]
    y = _wide((_wide(a) @ _wide(_unpacked(table, told).astype(a.dtype)).T).astype(a.dtype))
    kind = told.get("activation_type", "none")
    return [y if kind == "none" else y * _sigmoid(y) if kind == "silu" else np.maximum(y, 0) ** 2]


def _sparse_product(given: Given, told: Attributes) -> list[Any]:
    """Of the matrix with its zeros; alpha counts for floats of single precision alone, as in onnxruntime."""
    a, b = dense(given[0]), given[1]
    alpha = told.get("alpha", 1.0) if b.dtype == np.float32 else 1
    a, b = (x if x.dtype.kind in "iu" else _wide(x) for x in (a, b))
    return [alpha * ((a.T if told.get("transA", 0) else a) @ (b.T if told.get("transB", 0) else b))]


_WORK: Mapping[str, Callable[[Given, Attributes], list[Any]]] = {
    "GatedDeltaNet": _delta,
    "GatherPacked": _gather,
    "MatMulPacked": _product,
    "MoE": _sparse_mixture,
    "MoEGroupRouter": _router,
    "SparseToDenseMatMul": _sparse_product,
    "SwiGLU": _swiglu,
    "VarlenCausalConvWithState": _conv,
}
