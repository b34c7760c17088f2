"""Attention as operators of ONNX and com.microsoft, generated, against the NumPy kernels and float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from codegen_models import check, model, run_native, session
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, helper

from onnxplug.contract.errors import InvalidArgument

MS = "com.microsoft"
RTOL, ATOL = 1e-4, 2e-5
"""Both sides round sums of at most a few hundred products of numbers around 1, then weigh values by softmax."""
Operands = dict[str, np.ndarray | None]


@pytest.fixture(params=["", "generic"], ids=["widest", "generic"])
def target(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", request.param)
    yield request.param


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def built(
    op_type: str,
    operands: Operands,
    outputs: Sequence[str],
    domain: str = MS,
    fixed: Sequence[str] = (),
    **attributes: Any,
) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and what it is fed; operands named in ``fixed`` are constants."""
    names = [name if value is not None else "" for name, value in operands.items()]
    node = helper.make_node(op_type, names, list(outputs), domain=domain, **attributes)
    feeds = {name: value for name, value in operands.items() if value is not None and name not in fixed}
    constants = {name: value for name, value in operands.items() if value is not None and name in fixed}
    return model([node], feeds, [name for name in outputs if name], constants, opset=24), feeds


def compared(op_type: str, operands: Operands, outputs: Sequence[str], **given_: Any) -> list[np.ndarray]:
    proto, feeds = built(op_type, operands, outputs, **given_)
    return check(proto, feeds, rtol=RTOL, atol=ATOL)


HIDDEN = -64.0
"""Added to scores of hidden keys: where all are hidden, it leaves scores as many digits as the comparison needs. The default of
-10000 leaves them steps of a thousandth."""
MASKS = ["none", "keys", "ends", "ends and starts", "ends among others", "pairs", "longest"]


def mask_of(kind: str, batch: int, rows: int, keys: int) -> np.ndarray | None:
    rng = np.random.default_rng(keys)
    ends = rng.integers(1, keys + 1, batch)
    found: dict[str, np.ndarray | None] = {
        "none": None,
        "keys": rng.random((batch, keys)) < 0.7,
        "ends": ends,
        "ends and starts": np.concatenate([ends, ends // 2]),
        "ends among others": np.concatenate([ends, np.zeros(2 * batch + 2)]),
        "pairs": rng.random((batch, rows, keys)) < 0.7,
        "longest": rng.random((batch, 1, keys + 2, keys + 2)) < 0.7,
    }
    mask = found[kind]
    return None if mask is None else mask.astype(np.int32)


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 19), st.integers(0, 21), st.sampled_from([1, 5, 8, 16]),
    st.sampled_from(MASKS), st.booleans(), st.sampled_from([HIDDEN, -3.4028235e38]),
)  # fmt: skip
def test_self_attention(
    batch: int, heads: int, rows: int, before: int, size: int, kind: str, causal: bool, hidden: float
) -> None:
    width = heads * size
    past = normal(2, batch, heads, before, size) if before else None
    operands: Operands = {
        "x": normal(batch, rows, 12), "w": 0.3 * normal(12, 3 * width), "b": normal(3 * width),
        "m": mask_of(kind, batch, rows, before + rows), "p": past,
    }  # fmt: skip
    compared(
        "Attention", operands, ["y", "present"], fixed=["w", "b"], num_heads=heads, unidirectional=int(causal),
        mask_filter_value=hidden,
    )  # fmt: skip


def test_self_attention_in_every_option(target: str) -> None:
    operands: Operands = {
        "x": normal(2, 9, 16), "w": normal(16, 16 + 16 + 6), "b": normal(38), "m": mask_of("keys", 2, 9, 9), "p": None,
        "a": normal(1, 2, 9, 9),
    }  # fmt: skip
    compared(
        "Attention", operands, ["y"], fixed=["w"], num_heads=2, scale=0.3, mask_filter_value=-500.0, unidirectional=1,
        qkv_hidden_sizes=[16, 16, 6],
    )  # fmt: skip


@given(
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 19), st.integers(1, 21), st.integers(0, 9),
    st.sampled_from(MASKS[:-1]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_attention_behind_projections(
    batch: int, heads: int, rows: int, keys: int, before: int, kind: str, causal: bool, biased: bool
) -> None:
    size, columns = 8, 5
    pasts = [normal(batch, heads, before, n) if before else None for n in (size, columns)]
    operands: Operands = {
        "q": normal(batch, rows, heads * size), "k": normal(batch, keys, heads * size),
        "v": normal(batch, keys, heads * columns), "b": normal(heads * (2 * size + columns)) if biased else None,
        "m": mask_of(kind, batch, rows, before + keys), "a": None, "pk": pasts[0], "pv": pasts[1],
    }  # fmt: skip
    compared(
        "MultiHeadAttention", operands, ["y", "k1", "v1"], num_heads=heads, unidirectional=int(causal),
        mask_filter_value=HIDDEN,
    )  # fmt: skip


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("form", ["packed", "pairs", "crossed"])
def test_packed_and_crossed_operands(target: str, form: str, biased: bool) -> None:
    batch, rows, heads, size = 2, 7, 3, 8
    width = heads * size
    bias = normal(3 * width) if biased else None
    operands: Operands = {
        "packed": {"q": normal(batch, rows, heads, 3, size), "k": None, "v": None},
        "pairs": {"q": normal(batch, rows, width), "k": normal(batch, 11, heads, 2, size), "v": None},
        "crossed": {
            "q": normal(batch, rows, width), "k": normal(batch, heads, 11, size), "v": normal(batch, heads, 11, size),
        },
    }[form]  # fmt: skip
    compared("MultiHeadAttention", {**operands, "b": bias}, ["y"], num_heads=heads)


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(1, 4), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from([{}, {"softcap": 2.0}, {"local_window_size": 3}, {"causal": 0}, {"rotary_interleaved": 1}]),
)  # fmt: skip
def test_grouped_heads_over_a_cache(
    lengths: list[int], new: int, prompt: bool, packed: bool, rotary: bool, attributes: dict[str, Any]
) -> None:
    heads, shared, size, batch = 4, 2, 16, len(lengths)
    total = max(lengths) + new
    if prompt:
        new = total = max(lengths)
    ends = np.array([total if prompt else n + new for n in lengths], np.int32)
    cos, sin = (normal(40, size // 2, seed=s) if rotary else None for s in (1, 2))
    parts = {
        "q": normal(batch, new, heads * size), "k": normal(batch, new, shared * size), "v": normal(batch, new, shared * size),
    }  # fmt: skip
    if packed:
        parts = {"q": normal(batch, new, (heads + 2 * shared) * size), "k": None, "v": None}
    operands: Operands = {
        **parts, "pk": normal(batch, shared, total + 1, size), "pv": normal(batch, shared, total + 1, size, seed=3),
        "seqlens": ends - 1, "total": np.array(total, np.int32), "cos": cos, "sin": sin,
    }  # fmt: skip
    compared(
        "GroupQueryAttention", operands, ["y", "k1", "v1"], fixed=["total"], num_heads=heads, kv_num_heads=shared,
        do_rotary=int(rotary), **attributes,
    )  # fmt: skip


def test_a_cache_of_given_positions_and_a_bias(target: str) -> None:
    operands: Operands = {
        "q": normal(2, 1, 32), "k": normal(2, 1, 16), "v": normal(2, 1, 16), "pk": normal(2, 1, 6, 16),
        "pv": normal(2, 1, 6, 16), "seqlens": np.array([6, 3], np.int32), "total": np.array(7, np.int32),
        "cos": normal(20, 8), "sin": normal(20, 8), "places": np.array([[6], [3]]), "a": normal(2, 2, 1, 9),
    }  # fmt: skip
    compared(
        "GroupQueryAttention", operands, ["y", "k1", "v1"], fixed=["total"], num_heads=2, kv_num_heads=1, do_rotary=1
    )


@given(
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 17), st.integers(1, 21), st.integers(0, 9),
    st.sampled_from(["none", "bool", "float", "keys", "short"]),
    st.sampled_from([{}, {"is_causal": 1}, {"softcap": 1.5}, {"scale": 0.2}]), st.booleans(),
)  # fmt: skip
def test_the_standard_operator(
    batch: int, shared: int, rows: int, keys: int, before: int, kind: str, attributes: dict[str, Any], packed: bool
) -> None:
    heads, size, columns = 2 * shared, 8, 12
    total = keys + before
    rng = np.random.default_rng(total)
    masks = {
        "none": None, "bool": rng.random((batch, 1, rows, total)) < 0.5, "float": normal(rows, total),
        "keys": rng.random(total) < 0.5, "short": normal(rows, max(1, total - 1)),
    }  # fmt: skip
    q, k, v = normal(batch, heads, rows, size), normal(batch, shared, keys, size), normal(batch, shared, keys, columns)
    if packed:
        q, k, v = (x.transpose(0, 2, 1, 3).reshape(batch, x.shape[2], -1) for x in (q, k, v))
        attributes = {**attributes, "q_num_heads": heads, "kv_num_heads": shared}
    pasts = [normal(batch, shared, before, n) if before else None for n in (size, columns)]
    operands: Operands = {"q": q, "k": k, "v": v, "m": masks[kind], "pk": pasts[0], "pv": pasts[1]}
    compared("Attention", operands, ["y", "k1", "v1"] if before else ["y"], domain="", **attributes)


@pytest.mark.parametrize("causal", [0, 1])
def test_lengths_that_data_decide(target: str, causal: int) -> None:
    operands: Operands = {
        "q": normal(3, 2, 5, 8), "k": normal(3, 2, 11, 8), "v": normal(3, 2, 11, 8), "m": None, "pk": None, "pv": None,
        "ends": np.array([11, 6, 2]),
    }  # fmt: skip
    compared("Attention", operands, ["y"], domain="", is_causal=causal)


def test_rows_that_see_nothing_are_zero(target: str) -> None:
    mask = np.ones((4, 6), bool)
    mask[2] = False
    operands: Operands = {"q": normal(1, 2, 4, 8), "k": normal(1, 2, 6, 8), "v": normal(1, 2, 6, 8), "m": mask}
    (y,) = compared("Attention", operands, ["y"], domain="")
    assert not y[:, :, 2].any()
    assert y[:, :, 3].all()


def test_exact_within_the_promise() -> None:
    """Against float64, at a length of many panels of keys."""
    q, k, v = normal(1, 2, 70, 64), normal(1, 2, 1000, 64), normal(1, 2, 1000, 64)
    proto, feeds = built("Attention", {"q": q, "k": k, "v": v}, ["y"], "")
    (got,) = run_native(proto, feeds)
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3) / 8
    e = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True) @ v.astype(np.float64), rtol=1e-4, atol=1e-6)


def test_a_past_of_any_length_whose_presents_nobody_declared() -> None:
    """onnx infers no shape for a present where the past's length has a name."""
    feeds = {name: normal(2, 2, 5 if name in "pr" else 3, 8, seed=at) for at, name in enumerate("qkvpr")}
    nodes = [helper.make_node("Attention", ["q", "k", "v", "", "p", "r"], ["y", "pk", "pv"], is_causal=1)]
    check(model(nodes, feeds, ["y", "pk", "pv"], opset=23, symbolic=True), feeds)


@pytest.mark.parametrize("total", [-1, 0, 1])
def test_a_total_length_that_does_not_hold_the_new_rows(total: int) -> None:
    operands: Operands = {
        "q": normal(1, 2, 16), "k": normal(1, 2, 8), "v": normal(1, 2, 8), "pk": None, "pv": None,
        "l": np.array([1], np.int32), "t": np.array(total, np.int32),
    }  # fmt: skip
    proto, feeds = built("GroupQueryAttention", operands, ["y", "k1", "v1"], fixed=["t"], num_heads=2, kv_num_heads=1)
    with pytest.raises(InvalidArgument, match="total_sequence_length must be"):
        run_native(proto, feeds)


@pytest.mark.parametrize("length", [9, -3])
def test_lengths_of_a_first_step_that_its_caches_do_not_have(length: int) -> None:
    feeds = {"q": normal(1, 5, 32), "k": normal(1, 5, 32), "v": normal(1, 5, 32), "p": normal(1, 2, 9, 16)}
    feeds |= {"n": np.array([length], np.int32)}
    node = helper.make_node(
        "GroupQueryAttention", ["q", "k", "v", "p", "p", "n", "t"], ["y", "pk", "pv"], domain="com.microsoft", num_heads=2,
        kv_num_heads=2,
    )  # fmt: skip
    made = session(model([node], feeds, ["y", "pk", "pv"], {"t": np.array(5, np.int32)}))
    with pytest.raises(InvalidArgument, match=rf"seqlens_k\[0\] = {length} is out of range \[0, 9\)"):
        made.run(None, feeds)


def test_threads_do_not_change_a_bit() -> None:
    operands: Operands = {
        "x": normal(2, 40, 24), "w": normal(24, 72), "b": None, "m": mask_of("keys", 2, 40, 40),
    }  # fmt: skip
    proto, feeds = built("Attention", operands, ["y"], fixed=["w"], num_heads=3, unidirectional=1)
    (one,), (three,) = (run_native(proto, feeds, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize(
    ("op_type", "operands", "outputs", "attributes", "domain"),
    [
        ("MultiHeadAttention", {"q": normal(1, 2, 8), "k": normal(1, 2, 8), "v": normal(1, 2, 8)}, ["y", "", "", "qk"],
         {"num_heads": 2}, MS),
        ("GroupQueryAttention",
         {"q": normal(1, 2, 16), "k": normal(1, 2, 8), "v": normal(1, 2, 8), "pk": None, "pv": None,
          "l": np.array([1], np.int32), "t": np.array(2, np.int32)}, ["y", "k1", "v1"],
         {"num_heads": 2, "kv_num_heads": 1, "smooth_softmax": 1}, MS),
        ("Attention", {"q": normal(1, 1, 2, 8), "k": normal(1, 1, 2, 8), "v": normal(1, 1, 2, 8)}, ["y", "", "", "qk"],
         {}, ""),
    ],
    ids=["MultiHeadAttention", "GroupQueryAttention", "Attention"],
)  # fmt: skip
def test_what_is_not_generated_is_left_to_numpy(
    op_type: str, operands: Operands, outputs: list[str], attributes: dict[str, Any], domain: str
) -> None:
    proto, feeds = built(op_type, operands, outputs, domain, **attributes)
    made = session(proto)
    assert not any(str(node["region"]).startswith("native") for node in made.explain().nodes)
    assert all(np.isfinite(y).all() for y in made.run(None, feeds))


def test_a_layer_is_one_region() -> None:
    """What surrounds an attention joins it: its mask's cast, the product behind it, the sum and normalization."""
    node = helper.make_node
    feeds = {"x": normal(1, 6, 16), "m": np.ones((1, 6), np.int64)}
    nodes = [
        node("Cast", ["m"], ["m1"], to=6), node("Attention", ["x", "w", "b", "m1"], ["a"], domain=MS, num_heads=2),
        node("MatMul", ["a", "o"], ["p"]), node("SkipLayerNormalization", ["p", "x", "g", "h", "c"], ["y"], domain=MS),
    ]  # fmt: skip
    constants = {
        "w": normal(16, 48), "b": normal(48), "o": normal(16, 16), "g": normal(16), "h": normal(16), "c": normal(16),
    }  # fmt: skip
    proto = model(nodes, feeds, ["y"], constants)
    assert len(session(proto).explain().regions) == 1
    check(proto, feeds, rtol=RTOL, atol=ATOL)
