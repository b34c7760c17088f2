"""L3 and L4: whose memory results are, after the run and after the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import onnxplug
from onnxplug_testkit.check import check
from onnxplug_testkit.checks.graph import LARGE, agree
from onnxplug_testkit.checks.patterns import behind, products
from onnxplug_testkit.models import BINARY, UNARY, expected, model, open_session, taken
from onnxplug_testkit.space import place_of
from onnxplug_testkit.subject import Subject

LATER, NODES = 100, 20
"""Runs that go by while results are kept, and nodes."""
SIZES = (1, 17, 3, 64, 0, 5)
"""Rows, run by run."""
_ON_THE_DEVICE = "a result bound to the device"
Run = Callable[[onnxplug.InferenceSession, np.ndarray], tuple[list[Any], Callable[[], list[np.ndarray]]]]
"""(session, x) -> (what holds the memory meanwhile, how the results are read)."""


@check("robust.results_are_kept")
def results_are_kept(subject: Subject, seed: int) -> None:
    """Results stay as they are while the session runs on with other data and when it is gone, and inputs may change after a run."""
    rng = np.random.default_rng(seed)
    for made in products(subject, rng):
        for what, run in _runs(place_of(subject)):
            x = rng.uniform(-1, 1, (5, 16)).astype(np.float32)
            want = expected(made, {"x": x}, subject.name)
            session = open_session(subject, made, *behind(subject))
            held, read = run(session, x)
            x.fill(np.nan)
            agree(read(), want, what=f"{what}, whose input changed afterwards")
            for _ in range(LATER):
                held.append(run(session, rng.uniform(-1, 1, (5, 16)).astype(np.float32)))
                held = held[:1]
            agree(read(), want, what=f"{what}, {LATER} runs later")
            if what != _ON_THE_DEVICE:  # where values go when their session is closed
                session.close()
            del session
            agree(read(), want, what=f"{what}, when its session is gone")


@check("graph.sizes_in_turns")
def sizes_in_turns(subject: Subject, seed: int) -> None:
    """One session serves sizes that grow and shrink, from no rows to 70000, in chains and products, by run() and bindings used again."""
    rng = np.random.default_rng(seed)
    kind, index = place_of(subject)
    for made in products(subject, rng):
        names = [output.name for output in made.graph.output]
        with open_session(subject, made, *behind(subject)) as session:
            free, bound = session.io_binding(), session.io_binding()
            for name in names:
                free.bind_output(name, kind, index)
            earlier: list[tuple[list[onnxplug.OrtValue], list[Any]]] = []
            for rows in (*SIZES, *SIZES, LARGE):
                x = rng.uniform(-1, 1, (rows, 16)).astype(np.float32)
                want = expected(made, {"x": x}, subject.name)
                agree(session.run(None, {"x": x}), want, what=f"{rows} rows")
                free.bind_cpu_input("x", x)
                session.run_with_iobinding(free)
                agree(free.copy_outputs_to_cpu(), want, what=f"{rows} rows, bound to {kind}")
                earlier.append((free.get_outputs(), want))
                bound.bind_ortvalue_input("x", onnxplug.OrtValue.ortvalue_from_numpy(x, kind, index))
                given = [np.full(value.shape, np.nan, value.dtype) for value in want]
                for name, array in zip(names, given, strict=True):
                    bound.bind_ortvalue_output(name, onnxplug.OrtValue.ortvalue_from_numpy(array))
                session.run_with_iobinding(bound)
                agree(given, want, what=f"{rows} rows, into memory of the caller")
            for values, want in earlier:
                agree([value.numpy() for value in values], want, what=f"{len(want[0])} rows, kept")


@check("graph.shapes_of_data")
def shapes_of_data(subject: Subject, seed: int) -> None:
    """Tensors whose shapes only data decides, so that no plan gives results a place, live until the last reader, many nodes later."""
    rng = np.random.default_rng(seed)
    operators = [o for o in taken(subject) if o != "Exp"]
    both = next((o for o in operators if o in BINARY), None)
    nodes = [helper.make_node("Compress", ["x", "wanted"], ["v0"], "compress", axis=0)]
    for number in range(NODES):
        source, op_type = f"v{number}", operators[number % len(operators)]
        inputs = [source] if op_type in UNARY else [source, "v0"]
        nodes.append(helper.make_node(op_type, inputs, [f"v{number + 1}"], f"step{number}"))
    if both is not None:
        nodes.append(helper.make_node(both, [f"v{NODES}", "v1"], ["y"], "late"))
    made = model(nodes, {"x": ("n", 16)}, ["v1", "v2", "y" if both else f"v{NODES}"])
    made.graph.input.append(helper.make_tensor_value_info("wanted", TensorProto.BOOL, ["n"]))
    with open_session(subject, made, *behind(subject)) as session:
        for rows in (9, 2, 40):
            x = rng.uniform(-1, 1, (rows, 16)).astype(np.float32)
            feeds = {"x": x, "wanted": np.arange(rows) % 3 != 1}
            agree(session.run(None, feeds), expected(made, feeds, subject.name), what=f"{rows} rows")


def _runs(place: tuple[str, int]) -> Iterator[tuple[str, Run]]:
    kind, index = place

    def plain(session: onnxplug.InferenceSession, x: np.ndarray) -> Any:
        got = session.run(None, {"x": x})
        return [got], lambda: got

    def values(session: onnxplug.InferenceSession, x: np.ndarray) -> Any:
        got = session.run_with_ort_values(None, {"x": onnxplug.OrtValue.ortvalue_from_numpy(x, kind, index)})
        return [got], lambda: [value.numpy() for value in got]

    def binding(where: str, number: int) -> Run:
        def run(session: onnxplug.InferenceSession, x: np.ndarray) -> Any:
            made = session.io_binding()
            made.bind_cpu_input("x", x)
            for output in session.get_outputs():
                made.bind_output(output.name, where, number)
            session.run_with_iobinding(made)
            got = made.get_outputs()
            return [got], lambda: [value.numpy() for value in got]

        return run

    yield "a result of run()", plain
    yield "a result of run_with_ort_values()", values
    yield "a result bound to the host", binding("cpu", 0)
    if kind != "cpu":
        yield _ON_THE_DEVICE, binding(kind, index)
