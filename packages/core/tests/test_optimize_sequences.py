"""Sequences with known members and optionals of a known state: results with the pass are those without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_passes import OFF, ops, session
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxplug.contract.errors import STATUS_ERRORS

X = np.arange(24, dtype=np.float32).reshape(6, 4)


def same(one: Any, other: Any) -> None:
    if isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
        return
    np.testing.assert_array_equal(one, other, strict=True)


def check(text: str, left: list[str] | None = None, version: int = 21, **feeds: Any) -> None:
    source = model(text, version)
    feeds = feeds or {"x": X}
    made = session(source)
    same(made.run(None, feeds), session(source, OFF).run(None, feeds))
    if left is not None:
        assert ops(made) == left


def test_members_of_what_is_constructed() -> None:
    check(
        """g (float[6, 4] x) => (float[6, 4] y, int64 n, float[m, 4] z) <int64 one = {1}, int64 zero = {0}> {
        a = Relu(x) s = SequenceConstruct(x, a) t = SequenceInsert(s, a, zero) u = SequenceErase(t, one)
        e = SequenceAt(u, zero) y = Neg(e) n = SequenceLength(u) z = ConcatFromSequence<axis = 0>(u) }""",
        ["Relu", "Neg", "Concat"],
    )


@pytest.mark.parametrize(
    ("split", "left"),
    [
        ("<int64[3] n = {1, 2, 3}> { s = SplitToSequence(x, n)", ["Split", "Neg"]),
        ("<int64 n = {4}> { s = SplitToSequence<axis = 0>(x, n)", ["Split", "Neg"]),
        ("{ s = SplitToSequence<axis = -1>(x)", ["Split", "Neg"]),
        ("{ s = SplitToSequence<axis = 1, keepdims = 0>(x)", ["Split", "Squeeze", "Neg"]),
    ],
)
def test_parts(split: str, left: list[str]) -> None:
    body = "i = Constant<value_int = -1>() e = SequenceAt(s, i) y = Neg(e) }"
    check(f"g (float[6, 4] x) => (float y) {split} {body}", left)


def test_parts_that_cannot_be_stacked() -> None:
    """Some of what reads the sequence does as its members say, some stays."""
    source = model(
        """g (float[6, 4] x) => (int64 n, float y) <int64[2] k = {2, 4}> { s = SplitToSequence(x, k) n = SequenceLength(s)
        y = ConcatFromSequence<axis = 0, new_axis = 1>(s) }"""
    )
    found = []
    for made in (session(source), session(source, OFF)):
        with pytest.raises(STATUS_ERRORS) as failure:
            made.run(None, {"x": X})
        found.append(str(failure.value))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "text",
    [
        # what else reads the sequence wants it whole
        "g (float[6, 4] x, int64 i) => (float y) { s = SplitToSequence(x) y = SequenceAt(s, i) }",
        "g (float[6, 4] x, int64 i) => (seq(float[1, 4]) s, float[1, 4] y) <int64 o = {1}> { s = SplitToSequence(x) y = SequenceAt(s, o) }",
        # how many parts there are, only the data say
        "g (float[N, 4] x, int64 i) => (int64 n) { s = SplitToSequence(x) n = SequenceLength(s) }",
        "g (float[6, 4] x, int64 i) => (int64 n) { s = SplitToSequence(x, i) n = SequenceLength(s) }",
        # more parts than are worth a name each
        "g (float[64, 1] z, float[6, 4] x, int64 i) => (int64 n) { s = SplitToSequence(z) n = SequenceLength(s) }",
    ],
)
def test_what_stays(text: str) -> None:
    feeds = {"x": X, "i": np.array(2), "z": np.ones((64, 1), np.float32)}
    named = {name: value for name, value in feeds.items() if f" {name}" in text.partition("=>")[0].replace("(", " ")}
    check(text, **named)
    assert "SplitToSequence" in ops(session(model(text)))


@pytest.mark.parametrize(
    "text",
    [
        "g (float[6, 4] x) => (float y) <int64 o = {2}> { s = SequenceConstruct(x, x) y = SequenceAt(s, o) }",
        "g (float[6, 4] x) => (float y) { t = Transpose(x) s = SequenceConstruct(x, t) y = ConcatFromSequence<axis = 0>(s) }",
        "g (float[6, 4] x) => (float y) { o = Optional<type = float>() y = OptionalGetElement(o) }",
    ],
)
def test_failures_are_the_run_s(text: str) -> None:
    source = model(text)
    found = []
    for made in (session(source), session(source, OFF)):
        with pytest.raises(STATUS_ERRORS) as failure:
            made.run(None, {"x": X})
        found.append((type(failure.value), str(failure.value)))
    assert found[0] == found[1]


def test_optionals() -> None:
    check(
        """g (float[6, 4] x) => (bool a, bool b, bool c, float[6, 4] y) {
        o = Optional(x) a = OptionalHasElement(o) b = OptionalHasElement(x) n = Optional<type = float>()
        c = OptionalHasElement(n) e = OptionalGetElement(o) f = OptionalGetElement(e) y = Neg(f) }""",
        ["Neg"],
    )


def test_an_optional_that_is_fed_is_asked() -> None:
    source = model("g (optional(float[2]) x) => (bool h) { h = OptionalHasElement(x) }")
    made = session(source)
    assert ops(made) == ["OptionalHasElement"]
    assert made.run(None, {"x": np.ones(2, np.float32)})[0] and not made.run(None, {"x": None})[0]


def test_before_lengths_were_inputs() -> None:
    check(
        """g (float[6, 4] x) => (float y, float z) <int64[2] n = {2, 4}, int64 o = {1}> { s = SplitToSequence(x, n) y = SequenceAt(s, o)
        t = SequenceConstruct(x, x) z = ConcatFromSequence<axis = 0, new_axis = 1>(t) }""",
        ["SplitToSequence", "SequenceAt", "SequenceConstruct", "ConcatFromSequence"],
        11,
    )


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_chains(data: st.DataObject) -> None:
    """Sequences that grow and shrink at constant and at given places, and what is read of them."""
    count, lines, outputs, sizes = 0, [], [], {}

    def name() -> str:
        nonlocal count
        count += 1
        return f"v{count}"

    def place(last: int, size: int) -> str:
        if data.draw(st.booleans()) and data.draw(st.booleans()):
            return "i"  # 0, which every sequence of one has
        at = data.draw(st.integers(-size, last)) if size else 0
        lines.append(f"{(constant := name())} = Constant<value_int = {at}>()")
        return constant

    start = data.draw(
        st.sampled_from(["SequenceConstruct(x, r)", "SplitToSequence<axis = 0>(x, n)", "SplitToSequence(x)"])
    )
    lines.append(f"{(first := name())} = {start}")
    sizes[first] = {"SequenceConstruct(x, r)": 2, "SplitToSequence<axis = 0>(x, n)": 3}.get(start, 6)
    tensors = ["x", "r"]
    for _ in range(data.draw(st.integers(1, 6))):
        sequence = data.draw(st.sampled_from(sorted(sizes)))
        size, made = sizes[sequence], name()
        kind = data.draw(st.sampled_from(["insert", "append", "erase", "at", "length", "concat", "stack"]))
        if kind in ("insert", "append"):
            at = f", {place(size, size)}" if kind == "insert" else ""
            lines.append(f"{made} = SequenceInsert({sequence}, {data.draw(st.sampled_from(tensors))}{at})")
            sizes[made] = size + 1
        elif kind == "erase" and size > 1:
            lines.append(f"{made} = SequenceErase({sequence}, {place(size - 1, size)})")
            sizes[made] = size - 1
        elif kind == "at" and size:
            lines.append(f"{made} = SequenceAt({sequence}, {place(size - 1, size)})")
            tensors.append(made)
            outputs.append(f"float {made}")
        elif kind == "concat" and size:
            lines.append(f"{made} = ConcatFromSequence<axis = 0>({sequence})")
            outputs.append(f"float {made}")
        elif kind == "stack":
            lines.append(f"{(pair := name())} = SequenceConstruct(x, r, x)")
            lines.append(f"{made} = ConcatFromSequence<axis = -1, new_axis = 1>({pair})")
            outputs.append(f"float {made}")
        else:
            lines.append(f"{made} = SequenceLength({sequence})")
            outputs.append(f"int64 {made}")
    for sequence in data.draw(st.lists(st.sampled_from(sorted(sizes)), unique=True, max_size=2)):
        outputs.append(f"seq(float) {sequence}")
    if not outputs:
        outputs.append(f"seq(float) {first}")
    body = "\n".join(["r = Relu(x)", *lines])
    check(
        f"g (float[6, 4] x, int64 i) => ({', '.join(outputs)}) <int64[3] n = {{1, 2, 3}}> {{ {body} }}",
        x=X,
        i=np.array(0),
    )
