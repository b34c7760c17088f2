"""Attention, rotations and embeddings against the CPU provider in float32, in both forms of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from opencl_models import PROVIDER, needs_device, run

import onnxplug as ort
from onnxplug.contract import element_of
from onnxplug.contract.errors import InvalidArgument
from onnxplug.contract.types import ELEMENT_CODES

pytestmark = needs_device
FORMS = st.sampled_from(["register", "local"])
EPS = float(np.finfo(np.float32).eps)
SLOW = settings(max_examples=6, deadline=None, derandomize=True)  # the same kernels in every process, compiled once
MS = "com.microsoft"
BATCH, HEADS, SIZE = 2, 2, 8
WIDTH = HEADS * SIZE
Operands = list[np.ndarray | None]


def model(
    op_type: str, operands: Operands, outputs: int, domain: str, attributes: dict[str, Any], opset: int,
    skipped: tuple[int, ...] = (),
) -> bytes:  # fmt: skip
    """A model of one node; operands that are None, and outputs that are ``skipped``, are left out."""
    names = [f"x{n}" if a is not None else "" for n, a in enumerate(operands)]
    made = [f"y{n}" if n not in skipped else "" for n in range(outputs)]
    node = helper.make_node(op_type, names, made, "it", domain=domain, **attributes)
    info = [
        helper.make_tensor_value_info(n, ELEMENT_CODES[element_of(a.dtype)], a.shape)
        for n, a in zip(names, operands, strict=True)
        if a is not None
    ]
    graph = helper.make_graph([node], op_type, info, [helper.make_value_info(n, onnx.TypeProto()) for n in made if n])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def compare(
    op_type: str, operands: Operands, atol: float, *, outputs: int = 1, form: str = "auto", domain: str = MS, opset: int = 21,
    skipped: tuple[int, ...] = (), **attributes: Any,
) -> None:  # fmt: skip
    """Results of OpenCL alone against those of CPU on the same numbers in float32."""
    feeds = {f"x{n}": a for n, a in enumerate(operands) if a is not None}
    got = run(model(op_type, operands, outputs, domain, attributes, opset, skipped), feeds, kernel_shape=form)
    wide = [a.astype(np.float32) if a is not None and a.dtype.kind == "f" else a for a in operands]
    session = ort.InferenceSession(
        model(op_type, wide, outputs, domain, attributes, opset, skipped), providers=["CPUExecutionProvider"]
    )
    want = session.run(None, {f"x{n}": a for n, a in enumerate(wide) if a is not None})
    for mine, theirs in zip(got, want, strict=True):
        rounding = float(np.finfo(mine.dtype).eps) if mine.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(mine.astype(np.float64), theirs, rtol=2 * rounding, atol=atol)


def bound(keys: int, size: int = SIZE) -> float:
    """Of a result's error: scores of ``size`` products of numbers below 4, their error that of weights, values below 4; on both sides."""
    return 2 * 4 * EPS * (size * 16 / size**0.5 + keys)


def hidden(rng: np.random.Generator, kind: str, queries: int, keys: int) -> np.ndarray | None:
    """A mask in one of the forms of onnxruntime's attentions, which hides no row altogether."""
    if kind in ("ends", "spans"):
        ends = rng.integers(1, keys + 1, BATCH)
        return np.array([*ends, *(ends // 2 if kind == "spans" else [])], np.int32)
    shape = {"keys": (BATCH, keys), "rows": (BATCH, queries, keys)}.get(kind)
    if shape is None:
        return None
    mask = (rng.random(shape) > 0.3).astype(np.int32)
    mask[..., 0] = 1
    return mask


def numbers(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.clip(rng.standard_normal(shape), -4, 4).astype(dtype)


MASKS = st.sampled_from(["none", "ends", "spans", "keys", "rows"])


@SLOW
@given(st.data())
def test_attention_of_several_heads(data: st.DataObject) -> None:
    one = data.draw
    rng, form = np.random.default_rng(one(st.integers(0, 99))), one(FORMS)
    queries, fresh, past = one(st.integers(1, 9)), one(st.integers(1, 40)), one(st.sampled_from([0, 0, 3]))
    layout = one(st.sampled_from(["plain", "packed", "pairs", "heads"]))
    past, fresh, wide = (past if layout == "plain" else 0), (queries if layout == "packed" else fresh), SIZE
    q: np.ndarray = numbers(rng, BATCH, queries, WIDTH)
    k: np.ndarray | None
    v: np.ndarray | None
    if layout == "packed":
        q, k, v = numbers(rng, BATCH, queries, HEADS, 3, SIZE), None, None
    elif layout == "pairs":
        k, v = numbers(rng, BATCH, fresh, HEADS, 2, SIZE), None
    elif layout == "heads":
        k, v = (numbers(rng, BATCH, HEADS, fresh, SIZE) for _ in range(2))
    else:
        wide = 12
        k, v = numbers(rng, BATCH, fresh, WIDTH), numbers(rng, BATCH, fresh, HEADS * wide)
    bias = numbers(rng, 2 * WIDTH + HEADS * wide) / 8 if layout == "plain" and one(st.booleans()) else None
    keys = past + fresh
    mask = hidden(rng, one(MASKS), queries, keys)
    added = None
    if one(st.booleans()):
        added = numbers(rng, one(st.sampled_from([1, BATCH])), one(st.sampled_from([1, HEADS])), queries, keys)
    caches: Operands = [numbers(rng, BATCH, HEADS, past, n) for n in (SIZE, wide)] if past else [None, None]
    attributes: dict[str, Any] = {"num_heads": HEADS, "mask_filter_value": -50.0}
    attributes |= {"unidirectional": int(queries <= keys and one(st.booleans()))}
    attributes |= {"scale": 0.2} if one(st.booleans()) else {}
    outputs = 3 if past else one(st.sampled_from([1, 1 if attributes["unidirectional"] else 4]))
    compare(
        "MultiHeadAttention", [q, k, v, bias, mask, added, *caches], 2 * bound(keys), outputs=outputs, form=form, **attributes
    )  # fmt: skip


@SLOW
@given(st.data())
def test_attention_behind_its_projection(data: st.DataObject) -> None:
    one = data.draw
    rng, form = np.random.default_rng(one(st.integers(0, 99))), one(FORMS)
    length, past, wide = one(st.integers(1, 9)), one(st.sampled_from([0, 3])), one(st.sampled_from([SIZE, 12]))
    wide = SIZE if past else wide
    sizes = [WIDTH, WIDTH, HEADS * wide]
    x, weights = numbers(rng, BATCH, length, 10), numbers(rng, 10, sum(sizes)) / 8
    bias = numbers(rng, sum(sizes)) if one(st.booleans()) else None
    mask = hidden(rng, one(MASKS), length, past + length)
    cache = numbers(rng, 2, BATCH, HEADS, past, SIZE) if past else None
    attributes = {"num_heads": HEADS, "qkv_hidden_sizes": sizes, "mask_filter_value": -50.0}
    attributes["unidirectional"] = int(one(st.booleans()))
    # The projection's error, of 10 products, passes through the scores.
    atol = 8 * bound(past + length, SIZE + 10)
    compare(
        "Attention", [x, weights, bias, mask, cache], atol, outputs=2 if past else 1, form=form, **attributes
    )  # fmt: skip


@SLOW
@given(st.data())
def test_attention_of_onnx(data: st.DataObject) -> None:
    """Grouped heads, windows, caches, masks of truth values and of numbers."""
    one = data.draw
    rng, form = np.random.default_rng(one(st.integers(0, 99))), one(FORMS)
    shared, queries, fresh, past = (one(st.sampled_from(s)) for s in ([1, 3], [1, 5, 20], [4, 20, 40], [0, 0, 3]))
    keys = past + fresh
    q = numbers(rng, BATCH, HEADS * shared, queries, SIZE)
    k, v = (numbers(rng, BATCH, HEADS, fresh, n) for n in (SIZE, 12))
    kind, mask = one(st.sampled_from(["none", "truth", "numbers"])), None
    if kind != "none":
        shape = [one(st.sampled_from([1, n])) for n in (BATCH, HEADS * shared)] + [queries, keys]
        mask = numbers(rng, *shape) if kind == "numbers" else rng.random(shape) > 0.4
    caches: Operands = [numbers(rng, BATCH, HEADS, past, n) for n in (SIZE, 12)] if past else [None, None]
    lengths = None if past or one(st.booleans()) else rng.integers(1, keys + 1, BATCH)
    attributes: dict[str, Any] = {"is_causal": int(one(st.booleans())), "softcap": one(st.sampled_from([0.0, 2.0]))}
    operands = [q, k, v, mask, *caches, lengths]
    compare(
        "Attention", operands, 2 * bound(keys), outputs=3 if past else 1, form=form, domain="", opset=24, **attributes
    )  # fmt: skip


@pytest.mark.parametrize("form", ["register", "local"])
@pytest.mark.parametrize(("size", "queries"), [(64, 70), (300, 5)])
def test_long_heads(size: int, queries: int, form: str) -> None:
    """More than one tile of queries and of keys; keys of 300 elements are more than a tile in local memory takes."""
    rng = np.random.default_rng(5)
    q, k, v = (numbers(rng, 1, 1, n, size) for n in (queries, 40, 40))
    compare("Attention", [q, k, v], bound(40, size), form=form, domain="", opset=23)


def test_halves() -> None:
    """Projected numbers, below 8, are rounded to 11 bits; a score of 8 products of them is off by that, and so are weights of values."""
    rng = np.random.default_rng(7)
    x, weights = numbers(rng, BATCH, 5, 10, dtype=np.float16), (numbers(rng, 10, 3 * WIDTH) / 8).astype(np.float16)
    half = float(np.finfo(np.float16).eps)
    compare(
        "Attention", [x, weights, numbers(rng, 3 * WIDTH, dtype=np.float16)], 8 * half * SIZE**0.5 * 4, num_heads=HEADS
    )
    q, k, v = (numbers(rng, 1, 2, n, SIZE, dtype=np.float16) for n in (5, 9, 9))
    compare("Attention", [q, k, v], bound(9), domain="", opset=23)


@pytest.mark.parametrize("form", ["register", "local"])
@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_scores_that_are_asked_for(kept: int, form: str) -> None:
    rng = np.random.default_rng(kept)
    q, k, v = (numbers(rng, BATCH, HEADS, n, SIZE) for n in (5, 20, 20))
    mask = rng.random((5, 20)) > 0.4
    compare(
        "Attention", [q, k, v, mask, None, None], bound(20), outputs=4, skipped=(1, 2), form=form, domain="", opset=24,
        qk_matmul_output_mode=kept, softcap=2.0, is_causal=1,
    )  # fmt: skip


def test_caches_written_in_place_are_left_to_the_next_provider() -> None:
    rng = np.random.default_rng(0)
    given: Operands = [numbers(rng, 1, 3, WIDTH) for _ in range(3)]
    given += [None, None, None, *(numbers(rng, 1, HEADS, 6, SIZE) for _ in range(2)), np.array([2], np.int32)]
    data = model("MultiHeadAttention", given, 3, MS, {"num_heads": HEADS}, 21)
    session = ort.InferenceSession(data, providers=[PROVIDER, "CPUExecutionProvider"])
    assert session.placement() == {"it": "CPUExecutionProvider"}
    assert "written in place" in str(session.explain())


def test_operands_that_do_not_fit_are_shown() -> None:
    rng = np.random.default_rng(0)
    given: Operands = [numbers(rng, 2, 3, WIDTH) for _ in range(3)] + [None, np.ones((1, 3), np.int32)]
    with pytest.raises(Exception, match=r"MultiHeadAttention node.*shapes of the operands do not fit"):
        run(
            model("MultiHeadAttention", given, 1, MS, {"num_heads": HEADS}, 21),
            {f"x{n}": a for n, a in enumerate(given) if a is not None},
        )


ANGLES = np.linspace(0, 3, 12 * SIZE // 2, dtype=np.float32).reshape(12, SIZE // 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("first", [False, True])
def test_rotations(first: bool, interleaved: int, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    places = np.array([2], np.int64) if first else rng.integers(0, 12, (BATCH, 5))
    x, cos, sin = (a.astype(dtype) for a in (numbers(rng, BATCH, 5, WIDTH), np.cos(ANGLES), np.sin(ANGLES)))
    compare("RotaryEmbedding", [x, places, cos, sin], 4 * 4 * EPS, interleaved=interleaved)
    if not first:
        heads = numbers(rng, BATCH, HEADS, 5, SIZE, dtype=dtype)
        compare("RotaryEmbedding", [heads, cos, sin, places], 4 * 4 * EPS, domain="", opset=23, interleaved=interleaved)


@pytest.mark.parametrize("form", ["register", "local"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("segments", "masked", "placed"), [(True, True, False), (False, False, True), (True, True, True)]
)
def test_embeddings(segments: bool, masked: bool, placed: bool, dtype: Any, form: str) -> None:
    rng = np.random.default_rng(4)
    ids, kinds, places = (rng.integers(0, n, (BATCH, 5)).astype(np.int32) for n in (30, 2, 12))
    tables = [numbers(rng, n, 75, dtype=dtype) for n in (30, 12, 2)]
    operands: Operands = [ids, kinds if segments else None, *tables[:2], tables[2] if segments else None]
    operands += [numbers(rng, 75, dtype=dtype) for _ in range(2)]
    operands += [hidden(rng, "keys", 5, 5) if masked else None, places if placed else None]
    # A mean and a deviation of 75 numbers below 12, times a scale below 4.
    compare("EmbedLayerNormalization", operands, 2 * 75 * EPS * 12 * 4, outputs=3, form=form)


@pytest.mark.parametrize("op_type", ["EmbedLayerNormalization", "RotaryEmbedding"])
def test_a_number_beyond_its_table_is_an_error_that_names_the_node(op_type: str) -> None:
    rng, good = np.random.default_rng(4), np.zeros((BATCH, 5), np.int32)
    bad = good.copy()
    bad[1, 3] = 30
    if op_type == "RotaryEmbedding":
        at, operands = 1, [numbers(rng, BATCH, 5, WIDTH), good.astype(np.int64), np.cos(ANGLES), np.sin(ANGLES)]
    else:
        at, operands = 0, [good, None, numbers(rng, 30, 8), numbers(rng, 12, 8), None, numbers(rng, 8), numbers(rng, 8)]
    data = model(op_type, operands, 1 if at else 2, MS, {}, 21)
    session = ort.InferenceSession(data, providers=[PROVIDER])
    feeds = {f"x{n}": a for n, a in enumerate(operands) if a is not None}
    with pytest.raises(Exception, match="it: an index is out of bounds"):
        session.run(None, feeds | {f"x{at}": bad.astype(operands[at].dtype)})
    session.run(None, feeds)


@pytest.mark.parametrize("form", ["register", "local"])
@pytest.mark.parametrize(
    ("mask", "past", "columns"), [(None, True, False), ("ends", False, True), ("keys", False, False)]
)
@pytest.mark.parametrize("constant", [False, True])
def test_attention_behind_a_product_of_bytes(
    mask: str | None, past: bool, columns: bool, constant: bool, form: str
) -> None:
    rng = np.random.default_rng(7)
    queries, each = 5, 3 * WIDTH if columns else 1
    x = rng.integers(0, 256, (BATCH, queries, 12), np.uint8)
    w = rng.integers(-128, 128, (12, 3 * WIDTH), np.int8)
    steps = np.full(1, 0.02, np.float32), rng.uniform(0.001, 0.002, each).astype(np.float32)
    zeros = np.full(1, 120, np.uint8), rng.integers(-9, 9, each).astype(np.int8)
    kept = numbers(rng, 2, BATCH, HEADS, 3, SIZE) if past else None
    operands: Operands = [
        x, w, numbers(rng, 3 * WIDTH), *steps, None if mask is None else hidden(rng, mask, queries, queries), *zeros, kept
    ]  # fmt: skip
    operands = operands if past else operands[:-1]
    outputs = 2 if past else 1
    data = onnx.load_from_string(
        model("QAttention", operands, outputs, MS, {"num_heads": HEADS, "unidirectional": 1}, 21)
    )
    if constant:  # whose factor is kept on the device as tiles want it
        for n in (1, 4, 7):
            data.graph.initializer.append(onnx.numpy_helper.from_array(operands[n], f"x{n}"))
            data.graph.input.remove(next(value for value in data.graph.input if value.name == f"x{n}"))
    feeds = {i.name: operands[int(i.name[1:])] for i in data.graph.input}
    got = run(data.SerializeToString(), feeds, kernel_shape=form)
    want = ort.InferenceSession(data.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2 * EPS, atol=bound(queries + 3))


@pytest.mark.parametrize("segments", [False, True])
def test_embeddings_of_bytes(segments: bool) -> None:
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 9, (2, 5), np.int32)
    tables = [rng.integers(0, 256, shape, np.uint8) for shape in ((9, 12), (6, 12), (2, 12), (12,), (12,))]
    parameters = [np.float32(rng.uniform(0.01, 0.1)) for _ in tables] + [
        np.uint8(rng.integers(100, 150)) for _ in tables
    ]
    operands: Operands = [
        ids, ids % 2 if segments else None, *tables, (ids > 3).astype(np.int32), *(np.asarray(p) for p in parameters)
    ]  # fmt: skip
    for n in (4, 10, 15):
        operands[n] = operands[n] if segments else None
    # Normalised numbers are below 4, what they are multiplied by below 16.
    compare("QEmbedLayerNormalization", operands, 16 * 4 * 8 * EPS, outputs=2)
    operands[0] = ids + 8
    session = ort.InferenceSession(
        model("QEmbedLayerNormalization", operands, 2, MS, {}, 21), providers=[(PROVIDER, {})]
    )
    with pytest.raises(InvalidArgument, match="it: an index is out of bounds"):
        session.run(None, {f"x{n}": a for n, a in enumerate(operands) if a is not None})


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(("shape", "heads"), [((2, 5, 24), 2), ((2, 5, 24), 0), ((2, 3, 5, 16), 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rotations_by_three_places(
    dtype: Any, shape: tuple[int, ...], heads: int, interleaved: int, layout: int
) -> None:
    rng = np.random.default_rng(4)
    given = {"interleaved": interleaved, "mrope_layout": layout, "mrope_section": [3, 2, 1]}
    rows = shape[-2] if len(shape) == 4 else shape[1]
    operands: Operands = [numbers(rng, *shape, dtype=dtype), rng.integers(0, 9, (3, 2, rows))]
    operands += [numbers(rng, 9, 6, dtype=dtype) for _ in range(2)]
    given |= {"rotary_embedding_dim": 12} if len(shape) == 4 else {}
    given |= {"num_heads": heads} if heads else {}
    tolerance = 16 * (EPS if dtype == np.float32 else float(np.finfo(np.float16).eps))
    compare("MRotaryEmbedding", operands, tolerance, **given)


def test_places_and_angles_that_three_places_do_not_have() -> None:
    operands: Operands = [np.ones((1, 2, 8), np.float32), np.full((3, 1, 2), 9), *[np.ones((9, 4), np.float32)] * 2]
    for position, error in ((9, "out of bounds"), (-1, "out of bounds")):
        operands[1] = np.full((3, 1, 2), position)
        session = ort.InferenceSession(
            model("MRotaryEmbedding", operands, 1, MS, {"mrope_section": [2, 1, 1]}, 21), providers=[PROVIDER]
        )
        with pytest.raises(InvalidArgument, match=error):
            session.run(None, {f"x{n}": a for n, a in enumerate(operands) if a is not None})
    with pytest.raises(InvalidArgument):
        compare(
            "MRotaryEmbedding",
            [*operands[:1], np.zeros((3, 1, 2), np.int64), *operands[2:]],
            0,
            mrope_section=[2, 1, 0],
        )
