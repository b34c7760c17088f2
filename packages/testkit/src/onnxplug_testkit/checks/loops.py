"""L3: loops in whose bodies the subject has nodes: how they end, what they carry, and the rows that they collect."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import parser

from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.graph import agree
from onnxplug_testkit.checks.patterns import behind
from onnxplug_testkit.models import expected, open_session
from onnxplug_testkit.subject import Subject

TRIPS = (0, 1, 2, 3, 33, 50, 2)
"""Of which some are more than the core makes room for at first."""
_HEAD = '<ir_version: 8, opset_import: ["": 17]>'
_CROSSING = """g (float[k, 8] x, float[k, 8] z, int64 n) => (float[k, 8] y, float[k, 8] w, float[m, k, 8] rows) {
    y, w, rows = Loop (n, , x, z) <body = b (int64 i, bool c, float[k, 8] p, float[k, 8] q) =>
        (bool c, float[k, 8] r, float[k, 8] s, float[k, 8] o) { r = Tanh(q) m = Mul(p, x) s = Sub(m, x) o = Add(r, x) }> }"""
_ENDING = """g (float[k, 8] x, float least, float most, int64 n) => (float[k, 8] y, float t, float[m, k, 8] rows) {
    y, t, rows = Loop (n, , x, least) <body = b (int64 i, bool c, float[k, 8] p, float s) =>
        (bool d, float[k, 8] r, float u, float[k, 8] o) { u = Add(s, least) d = Less(u, most) r = Add(p, u) o = Sub(x, r) }> }"""
_ALONG = """g (float[8] h, float[m, 8] x, float[m, 8] z) => (float[8] y, float[m, 8] rows) {
    y, rows = Scan <num_scan_inputs = 2, scan_input_directions = [0, 1], body = b (float[8] s, float[8] a, float[8] c) =>
        (float[8] u, float[8] o) { v = Add(s, a) u = Tanh(v) o = Mul(u, c) }> (h, x, z) }"""


@check("graph.loops")
def loops(subject: Subject, seed: int) -> None:
    """Loops that a condition ends or a number, that carry values crosswise and collect rows, and scans, give the oracle's results."""
    rng = np.random.default_rng(seed)
    met = False
    for what, text in (
        ("that carries values crosswise", _CROSSING),
        ("that a condition ends", _ENDING),
        ("along rows", _ALONG),
    ):
        made = parser.parse_model(_HEAD + text)
        with open_session(subject, made, *behind(subject)) as session:
            if subject.name not in session.placement().values():
                continue
            met = True
            for trips, feeds in _fed(made, rng):
                agree(
                    session.run(None, feeds),
                    expected(made, feeds, subject.name),
                    what=f"{trips} trips of a loop {what}",
                )
    if not met:
        raise Unsupported("operators", "no node of any body is claimed")


def _fed(made: onnx.ModelProto, rng: np.random.Generator) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Inputs for several numbers of trips. Where a condition ends a loop, it is the one time before the number does, the other later."""
    names = [value.name for value in made.graph.input]
    for number, trips in enumerate(TRIPS):
        for rows in (3, 1):
            shape = (trips, 8) if "h" in names else (rows, 8)
            feeds = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name in names}
            if "h" in names:
                feeds["h"] = rng.uniform(-1, 1, 8).astype(np.float32)
            if "n" in names:
                feeds["n"] = np.array(trips if number % 2 else trips + 40)
            if "most" in names:
                feeds |= {"least": np.array(0.5, np.float32), "most": np.array(0.5 * trips + 0.75, np.float32)}
            yield trips, feeds
