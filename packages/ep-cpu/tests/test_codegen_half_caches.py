"""Caches of 16 bits: only what is new is rounded, and the attention of a few rows reads them as they lie."""

from __future__ import annotations

from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from codegen_models import model, session
from onnx import helper

import onnxplug
from onnxplug_ep_cpu.codegen.lower import attention, attention_pattern, heads

node = helper.make_node
BATCH, HEADS, SHARED, PAST, SIZE = 2, 4, 2, 37, 40
SCALE = 5 / 32
"""About SIZE ** -0.5, and a number of both types."""
MS = "com.microsoft"


def written_out() -> list[Any]:
    """As exporters write it: caches joined, the product of queries and keys, softmax, the product with values."""
    return [
        node("Concat", ["past_key", "k"], ["key"], axis=2),
        node("Concat", ["past_value", "v"], ["value"], axis=2),
        node("Transpose", ["key"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "turned"], ["scores"]),
        node("Mul", ["scores", "root"], ["scaled"]),
        node("Softmax", ["scaled"], ["weights"], axis=-1),
        node("MatMul", ["weights", "value"], ["y"]),
    ]


OPERATORS = {
    "written out": written_out(),
    "Attention": [
        node("Attention", ["q", "k", "v", "", "past_key", "past_value"], ["y", "key", "value"], scale=SCALE)
    ],
    "MultiHeadAttention": [
        node(
            "MultiHeadAttention", ["q", "k", "v", "", "", "", "past_key", "past_value"], ["y", "key", "value"],
            domain=MS, num_heads=HEADS, scale=SCALE,
        )
    ],
    "GroupQueryAttention": [
        node(
            "GroupQueryAttention", ["q", "k", "v", "past_key", "past_value", "lengths", "total"], ["y", "key", "value"],
            domain=MS, num_heads=HEADS, kv_num_heads=SHARED, scale=SCALE,
        )
    ],
}  # fmt: skip


def exact(feeds: dict[str, np.ndarray], group: int, causal: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The attention in float64, and the caches, whose new rows are those that were fed."""
    key, value = (np.concatenate([feeds[f"past_{n}"], feeds[n[0]]], 2) for n in ("key", "value"))
    q, k, v = (x.astype(np.float64) for x in (feeds["q"], key, value))
    scores = q @ k.repeat(group, 1).swapaxes(2, 3) * SCALE
    rows, keys = scores.shape[2:]
    if causal:
        scores = np.where(np.tri(rows, keys, keys - rows, dtype=bool), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v.repeat(group, 1), key, value


@pytest.mark.parametrize("target", ["", "avx2", "generic"])
@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize(
    ("form", "kind"),
    [
        *((form, np.float16) for form in OPERATORS),
        *((form, ml_dtypes.bfloat16) for form in OPERATORS if form[0] != "M"),
    ],
)
def test_only_what_is_new_is_rounded(
    form: str, kind: Any, rows: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    shared = HEADS if form in ("written out", "MultiHeadAttention") else SHARED
    rng = np.random.default_rng(0)
    sizes = {
        "q": (HEADS, rows),
        "k": (shared, rows),
        "v": (shared, rows),
        "past_key": (shared, PAST),
        "past_value": (shared, PAST),
    }
    feeds = {n: rng.standard_normal((BATCH, *size, SIZE)).astype(kind) for n, size in sizes.items()}
    wanted = exact(feeds, HEADS // shared, form == "GroupQueryAttention")
    if form.endswith(("HeadAttention", "QueryAttention")):
        for name in "qkv":
            feeds[name] = feeds[name].swapaxes(1, 2).reshape(BATCH, rows, -1)
        wanted = (wanted[0].swapaxes(1, 2).reshape(BATCH, rows, -1), *wanted[1:])
    if form == "GroupQueryAttention":
        feeds["lengths"], feeds["total"] = np.full(BATCH, PAST + rows - 1, np.int32), np.array(PAST + rows, np.int32)
    type_ = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    # What the attention reads is computed in the region, so that it is float32 there.
    proto = model(
        [node("Neg", [n], [f"-{n}"]) for n in "qkv"] + [node("Neg", [f"-{n}"], [f"+{n}"]) for n in "qkv"]
        + [helper.make_node(n.op_type, [f"+{i}" if i in ("q", "k", "v") else i for i in n.input], list(n.output), domain=n.domain,
           **{a.name: helper.get_attribute_value(a) for a in n.attribute}) for n in OPERATORS[form]],
        feeds, ["y", "key", "value"], {"root": np.array(SCALE, kind)}, opset=23, types=dict.fromkeys(("y", "key", "value"), type_),
    )  # fmt: skip
    read: list[str] = []

    def watched(b: Any, given: attention.Heads, *rest: Any, **more: Any) -> None:
        read.append(given.k.element)
        attention.attend(b, given, *rest, **more)

    with mock.patch.object(attention_pattern, "attend", watched), mock.patch.object(heads, "attend", watched):
        got = session(proto).run(None, feeds)
    assert read == [np.dtype(kind).name]
    for name, ours, past in zip(("key", "value"), got[1:], ("past_key", "past_value"), strict=True):
        np.testing.assert_array_equal(ours.view(np.uint16), wanted[1 + (name == "value")].view(np.uint16))
        np.testing.assert_array_equal(ours[:, :, :PAST], feeds[past])
    unit = 2.0**-11 if kind == np.float16 else 2.0**-8
    # One rounding of the result; before it the float32 errors that docs/numerics.md allows an attention.
    slack = 64 * np.finfo(np.float32).eps * np.abs(wanted[2].astype(np.float64)).max()
    np.testing.assert_allclose(got[0].astype(np.float64), wanted[0], rtol=unit * 1.01, atol=slack)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_a_bound_cache_stays_where_it_is(kind: Any) -> None:
    rng = np.random.default_rng(1)
    room, total = 512, 100
    operands = {"q": HEADS, "k": SHARED, "v": SHARED}
    feeds = {n: rng.standard_normal((1, 1, count * SIZE)).astype(kind) for n, count in operands.items()}
    held = [rng.standard_normal((1, SHARED, room, SIZE)).astype(kind) for _ in range(2)]
    feeds |= {"past_key": held[0], "past_value": held[1]}
    feeds |= {"lengths": np.array([total - 1], np.int32), "total": np.array(total, np.int32)}
    types = dict.fromkeys(("y", "key", "value"), helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    made = session(model(OPERATORS["GroupQueryAttention"], feeds, ["y", "key", "value"], types=types))
    wanted = made.run(None, feeds)
    before = [array.copy() for array in held]
    binding = made.io_binding()
    lies = dict(zip(("past_key", "past_value"), map(onnxplug.OrtValue.ortvalue_from_numpy, held), strict=True))
    for name, array in feeds.items():
        value = lies.get(name)
        binding.bind_ortvalue_input(name, value or onnxplug.OrtValue.ortvalue_from_numpy(array))
    binding.bind_output("y")
    for name in ("key", "value"):
        binding.bind_ortvalue_output(name, lies[f"past_{name}"])
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), wanted[0])
    for name, old, all_rows in zip(("key", "value"), before, wanted[1:], strict=True):
        now = lies[f"past_{name}"].numpy()
        np.testing.assert_array_equal(now[:, :, :total], all_rows[:, :, :total])
        np.testing.assert_array_equal(now[:, :, total:], old[:, :, total:])  # a copy would have zeros there
