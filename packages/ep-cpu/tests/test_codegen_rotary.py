"""Rotary and BERT's embeddings, and products that end in an activation, as generated code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import check, model, session
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from onnxplug.contract.errors import InvalidArgument

MS = "com.microsoft"


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


@given(
    st.integers(1, 3), st.integers(1, 9), st.integers(1, 3), st.sampled_from([2, 6, 16, 40]), st.sampled_from([0, 2, 8]),
    st.sampled_from([0, 1]), st.sampled_from(["given", "first", "rows"]), st.booleans(),
)  # fmt: skip
def test_rotary_embedding(
    batch: int, rows: int, heads: int, size: int, rest: int, interleaved: int, kind: str, packed: bool
) -> None:
    wide, pairs = size + rest, size // 2
    x = normal(batch, rows, heads * wide) if packed else normal(batch, heads, rows, wide)
    attributes: dict[str, Any] = {"interleaved": interleaved}
    if rest:
        attributes["rotary_embedding_dim"] = size
    if packed:
        attributes["num_heads"] = heads
    domain = MS if kind == "first" else ""
    angles = [normal(batch, rows, pairs), normal(batch, rows, pairs)]
    feeds = {"x": x, "c": angles[0], "s": angles[1]}
    names = ["x", "c", "s"]
    if kind != "rows":
        feeds |= {"c": normal(30, pairs), "s": normal(30, pairs)}
        places = np.random.default_rng(rows).integers(0, 30, (batch, rows))
        feeds["p"] = np.array([7]) if kind == "first" else places
        names = ["x", "p", "c", "s"] if kind == "first" else ["x", "c", "s", "p"]
    node = helper.make_node("RotaryEmbedding", names, ["y"], domain=domain, **attributes)
    check(model([node], feeds, ["y"], opset=23), feeds)


@pytest.mark.parametrize("section", [[4, 2, 2], [2, 3, 3], [8, 0, 0], [0, 5, 3]])
@pytest.mark.parametrize("in_turns", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_rotary_embedding_of_three_places(section: list[int], in_turns: int, packed: bool) -> None:
    x = normal(2, 5, 3 * 18) if packed else normal(2, 3, 5, 18)
    places = np.random.default_rng(3).integers(0, 30, (3, 2, 5))
    feeds = {"x": x, "p": places, "c": normal(30, 8), "s": normal(30, 8)}
    given = {"mrope_section": section, "mrope_layout": in_turns, "num_heads": 3, "rotary_embedding_dim": 16}
    node = helper.make_node("MRotaryEmbedding", list(feeds), ["y"], domain=MS, **given)
    check(model([node], feeds, ["y"]), feeds)


@pytest.mark.parametrize("place", [3, -1])
def test_a_position_out_of_range_is_an_error(place: int) -> None:
    feeds = {"x": normal(1, 1, 2, 4), "c": normal(3, 2), "s": normal(3, 2), "p": np.array([[0, place]])}
    node = helper.make_node("RotaryEmbedding", ["x", "c", "s", "p"], ["y"])
    made = session(model([node], feeds, ["y"], opset=23))
    with pytest.raises(InvalidArgument, match=rf"position_ids value {place} at index 1 is out of range \[0, 3\)"):
        made.run(None, feeds)


@pytest.mark.parametrize("place", [3, -1])
def test_a_place_of_three_out_of_range_is_an_error(place: int) -> None:
    feeds = {"x": normal(1, 1, 2, 6), "p": np.full((3, 1, 2), place), "c": normal(3, 3), "s": normal(3, 3)}
    node = helper.make_node("MRotaryEmbedding", list(feeds), ["y"], domain=MS, mrope_section=[1, 1, 1])
    made = session(model([node], feeds, ["y"]))
    with pytest.raises(InvalidArgument, match=rf"position_ids value {place} at index 0 is out of range \[0, 3\)"):
        made.run(None, feeds)


def test_places_that_would_spread_are_refused() -> None:
    feeds = {"x": normal(2, 3, 5, 8), "p": np.zeros((1, 5), np.int64), "c": normal(9, 4), "s": normal(9, 4)}
    node = helper.make_node("RotaryEmbedding", list(feeds), ["y"], domain=MS)
    made = session(model([node], feeds, ["y"], symbolic=True))
    with pytest.raises(InvalidArgument, match=r"input 1 of RotaryEmbedding has shape \{1,5\}"):
        made.run(None, feeds)


@pytest.mark.parametrize("word", [9, -1])
def test_a_word_out_of_range_is_an_error(word: int) -> None:
    feeds = {
        "ids": np.array([[0, word]], np.int32),
        "w": normal(9, 4),
        "p": normal(6, 4),
        "g": normal(4),
        "b": normal(4),
    }
    node = helper.make_node(
        "EmbedLayerNormalization", ["ids", "", "w", "p", "", "g", "b"], ["y", "m"], domain="com.microsoft"
    )
    made = session(model([node], feeds, ["y"]))
    with pytest.raises(InvalidArgument, match="input index out of range"):
        made.run(None, feeds)
    feeds["ids"][0, 1] = 8
    assert made.run(None, feeds)[0].shape == (1, 2, 4)


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_embeddings_of_bert(positions: bool, segmented: bool, masked: bool) -> None:
    rng = np.random.default_rng(0)
    feeds = {"ids": rng.integers(0, 9, (2, 5)).astype(np.int32)}
    if segmented:
        feeds["seg"] = rng.integers(0, 2, (2, 5)).astype(np.int32)
    if masked:
        feeds["mask"] = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    if positions:
        feeds["pos"] = rng.integers(0, 6, (2, 5)).astype(np.int32)
    tables = {"words": normal(9, 12), "places": normal(6, 12), "kinds": normal(2, 12), "g": normal(12), "b": normal(12)}
    names = ["ids", "seg" if segmented else "", "words", "places", "kinds" if segmented else "", "g", "b"]
    names += ["mask" if masked else "", "pos" if positions else ""]
    while not names[-1]:
        names.pop()
    node = helper.make_node("EmbedLayerNormalization", names, ["y", "n", "sum"], domain=MS, epsilon=1e-5)
    check(model([node], feeds, ["y", "n", "sum"], tables, types={"n": 6}), feeds, rtol=1e-4, atol=1e-5)


ACTIVATIONS = {
    "": {}, "Relu": {}, "Tanh": {}, "Sigmoid": {}, "Softplus": {}, "Softsign": {}, "LeakyRelu": {"alpha": 0.2},
    "Elu": {"alpha": 0.5}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4}, "ThresholdedRelu": {"alpha": 0.7},
    "Selu": {"alpha": 1.5, "gamma": 1.1}, "ScaledTanh": {"alpha": 0.5, "beta": 2.0},
}  # fmt: skip


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("op_type", ["FusedGemm", "FusedMatMulActivation"])
def test_products_that_end_in_an_activation(op_type: str, kind: str) -> None:
    """Read twice, so that the product is not written before its activation by mistake."""
    given_ = {"activation": kind} if kind else {}
    attributes = {**given_, **{f"activation_{name}": value for name, value in ACTIVATIONS[kind].items()}, "alpha": 0.7}
    if op_type == "FusedMatMulActivation":
        attributes["activation"] = kind
    names = ["x", "w", "c"] if op_type == "FusedGemm" else ["x", "w"]
    nodes = [helper.make_node(op_type, names, ["y"], domain=MS, **attributes), helper.make_node("Neg", ["y"], ["z"])]
    feeds = {"x": normal(9, 20)}
    check(model(nodes, feeds, ["y", "z"], {"w": normal(20, 17), "c": normal(17)}), feeds, rtol=1e-4, atol=1e-5)


def test_few_rows_and_none() -> None:
    """A product whose tiles of rows are few, and of which there are none."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    constants = {"w": normal(50, 70)}
    for rows in range(14):
        feeds = {"x": normal(rows, 50)}
        (y,) = check(model(nodes, feeds, ["y"], constants), feeds, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(y, feeds["x"].astype(np.float64) @ constants["w"], rtol=1e-4, atol=1e-5)
