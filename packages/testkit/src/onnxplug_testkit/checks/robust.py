"""L4: threads, odd graphs, errors, repeatability."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.graph import ATOL, RTOL
from onnxplug_testkit.models import CPU, chain, dag, expected, model, open_session, taken
from onnxplug_testkit.subject import Subject

THREADS, RUNS = 4, 20
OFTEN = 1e-6
"""Seconds after which Python lets another thread go on, so that what threads share shows in few runs."""
MANY = 256
"""Runs after which a count in a byte begins anew."""
CULPRIT = "culprit"
"""The name of the node that fails."""
PATIENCE = 60
"""Seconds after which threads count as stuck."""


@check("robust.threads")
def threads(subject: Subject, seed: int) -> None:
    """Threads that run one session at once, each with its own data, all get their own results, and none gets stuck."""
    made = dag(subject, np.random.default_rng(seed))
    shapes = [(64, 16), (3, 16), (64, 16), (17, 16), (64, 16)]
    rng = np.random.default_rng(seed)
    feeds = [{n: rng.standard_normal(shape).astype(np.float32) for n in ("x", "z")} for shape in shapes]
    wanted = [expected(made, feed, subject.name) for feed in feeds]
    with open_session(subject, made) as session:
        start = threading.Barrier(len(shapes))

        def work(number: int) -> None:
            start.wait(PATIENCE)
            for _ in range(RUNS):
                for got, want in zip(session.run(None, feeds[number]), wanted[number], strict=True):
                    assert np.allclose(got, want, RTOL, ATOL), "a thread gets wrong results while others run"

        interval = sys.getswitchinterval()
        sys.setswitchinterval(OFTEN)
        try:
            together([partial(work, number) for number in range(len(shapes))])
        finally:
            sys.setswitchinterval(interval)


@check("robust.sessions_in_threads")
def sessions_in_threads(subject: Subject, seed: int) -> None:
    """Sessions can be made, run and closed in several threads at once."""
    made = chain(subject)
    x = np.random.default_rng(seed).standard_normal((5, 16)).astype(np.float32)
    want = expected(made, {"x": x}, subject.name)[0]

    def work() -> None:
        for _ in range(3):
            with open_session(subject, made) as session:
                assert np.allclose(session.run(None, {"x": x})[0], want, RTOL, ATOL), (
                    "a session made in a thread is wrong"
                )

    together([work] * THREADS)


@check("robust.same_bits")
def same_bits(subject: Subject, seed: int) -> None:
    """The same data gives the same bits: run after run, for hundreds of runs, after other shapes, and in another session."""
    made = dag(subject, np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    feeds = {n: rng.standard_normal((9, 16)).astype(np.float32) for n in ("x", "z")}
    other = {n: rng.standard_normal((2, 16)).astype(np.float32) for n in ("x", "z")}
    found = []
    for _ in range(2):
        with open_session(subject, made) as session:
            for number in range(6):
                found.append(session.run(None, feeds))
                if number % 2:
                    session.run(None, other)
            for _ in range(MANY):
                session.run(None, other)
            found.append(session.run(None, feeds))
    for got in found[1:]:
        for a, b in zip(found[0], got, strict=True):
            assert a.tobytes() == b.tobytes(), "the same data gives other bits"


@check("robust.errors_are_raised")
def errors_are_raised(subject: Subject, seed: int) -> None:
    """A run that cannot be right raises an error that names the node, and the session answers the next run, without getting stuck."""
    together([partial(_refuses, subject, *case) for case in impossible(subject)])


def _refuses(subject: Subject, made: Any, bad: dict[str, Any], good: dict[str, Any]) -> None:
    label = next(node.op_type for node in made.graph.node if node.name == CULPRIT)
    with open_session(subject, made) as session:
        try:
            session.run(None, bad)
        except (Exception, SystemExit) as error:
            assert isinstance(error, (*STATUS_ERRORS, RuntimeError, ValueError)), (
                f"{label}: {type(error).__name__} escapes: {error}"
            )
            assert CULPRIT in str(error), (
                f"{label}: the error does not name the node, which an exception of a region has as attribute `node`: {error}"
            )
        else:
            raise AssertionError(f"{label} on operands that do not go together gives a result")
        got = session.run(None, good)[0]
        assert np.allclose(got, expected(made, good, subject.name)[0], RTOL, ATOL), (
            f"{label} is wrong after a run that failed"
        )


@check("robust.odd_graphs")
def odd_graphs(subject: Subject, seed: int) -> None:
    """Legal graphs out of the ordinary are placed and compiled: no nodes, unknown rank, unused and repeated values, no names."""
    op_type = taken(subject)[0]
    arity = 2 if op_type in ("Add", "Mul", "Sub") else 1
    unknown = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)

    def graph(nodes: Sequence[Any], outputs: Sequence[str], inputs: Sequence[Any] = (unknown,)) -> Any:
        infos = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        return helper.make_model(
            helper.make_graph(list(nodes), "odd", list(inputs), infos),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        )

    def node(source: str, target: str) -> Any:
        return helper.make_node(op_type, [source] * arity, [target])

    x = np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)
    models = {
        "of unknown rank": graph([node("x", "y")], ["y"]),
        "with an unused result": graph([node("x", "y"), node("x", "unused")], ["y"]),
        "without nodes": graph([], ["x"]),
        "with an unused input": graph(
            [node("x", "y")], ["y"], [unknown, helper.make_tensor_value_info("w", TensorProto.FLOAT, [1])]
        ),
    }
    behind = [] if subject.name == CPU else [CPU]
    raised: list[Exception] = []

    def noting(provider: Any) -> Any:
        compiling = provider.compile

        def compile(regions: Sequence[Any]) -> Any:
            try:
                return compiling(regions)
            except Exception as error:
                raised.append(error)
                raise

        provider.compile = compile
        return provider

    for what, made in models.items():
        feeds = {"x": x, **({"w": np.ones(1, np.float32)} if what.endswith("input") else {})}
        try:
            with subject.watched(noting), open_session(subject, made, *behind) as session:
                got = session.run(None, feeds)[0]
        except STATUS_ERRORS as error:
            raise AssertionError(f"a graph {what}: {error}") from error
        assert np.allclose(got, expected(made, feeds, subject.name)[0], RTOL, ATOL), (
            f"a graph {what} gives a wrong result"
        )
        assert not raised, f"compile() raises on regions of a graph {what}: {raised[0]!r}"


@check("robust.close_is_quiet")
def close_is_quiet(subject: Subject, seed: int) -> None:
    """``close()`` raises nothing: unused, after a run, after a run that failed, and on another thread, as the collector calls it."""
    made = chain(subject)
    x = np.random.default_rng(seed).standard_normal((3, 16)).astype(np.float32)
    try:
        with subject.instance():
            pass
        with open_session(subject, made) as session:
            session.run(None, {"x": x})
        elsewhere = open_session(subject, made)
        elsewhere.run(None, {"x": x})
        with ThreadPoolExecutor(1) as pool:
            pool.submit(elsewhere.close).result()
        failing = open_session(subject, made)
        try:
            failing.run(None, {"x": x.astype(np.int64)})
        except STATUS_ERRORS:
            pass
        finally:
            failing.close()
    except Exception as error:
        raise AssertionError(f"close() raises {type(error).__name__}: {error}") from error


def together(tasks: Sequence[Callable[[], None]]) -> None:
    """Run tasks in daemon threads; the first error of any, or an assertion that they hang."""
    errors: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=guarded, args=(task,), daemon=True) for task in tasks]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in running), f"threads are stuck after {PATIENCE} seconds"
    if errors:
        raise AssertionError(f"a thread fails: {type(errors[0]).__name__}: {errors[0]}") from errors[0]


def impossible(subject: Subject) -> list[tuple[Any, dict[str, Any], dict[str, Any]]]:
    """Models with feeds that cannot work and feeds that do, of operators the subject claims."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    index = helper.make_tensor_value_info("i", TensorProto.INT64, ["k"])
    candidates = []
    for op_type in ("Add", "Mul", "MatMul", "Sub", "Concat"):
        attributes: dict[str, Any] = {"axis": 1} if op_type == "Concat" else {}
        made = model(
            [helper.make_node(op_type, ["x", "w"], ["y"], CULPRIT, **attributes)],
            {"x": ("n", "m"), "w": ("p", "q")},
            ["y"],
        )
        candidates.append((made, {"x": floats(2, 3), "w": floats(4, 5)}, {"x": floats(3, 3), "w": floats(3, 3)}))
    behind = [helper.make_node("Relu", ["x"], ["r"], "before"), helper.make_node("Add", ["r", "w"], ["s"], CULPRIT)]
    made = model([*behind, helper.make_node("Relu", ["s"], ["y"], "after")], {"x": ("n", "m"), "w": ("p", "q")}, ["y"])
    candidates.append((made, {"x": floats(2, 3), "w": floats(4, 5)}, {"x": floats(3, 3), "w": floats(3, 3)}))
    for op_type, bad, good in (("Gather", [0, 99], [0, 1]), ("Reshape", [7, 7], [3, 2]), ("Expand", [4, 5], [2, 3])):
        made = model([helper.make_node(op_type, ["x", "i"], ["y"], CULPRIT)], {"x": ("n", "m")}, ["y"])
        made.graph.input.append(index)
        x = floats(2, 3)
        candidates.append((made, {"x": x, "i": np.array(bad, np.int64)}, {"x": x, "i": np.array(good, np.int64)}))
    found = []
    for made, wrong, right in candidates:
        try:
            with open_session(subject, made) as session:
                if session.placement().get(CULPRIT) == subject.name:
                    found.append((made, wrong, right))
        except STATUS_ERRORS:
            continue
    if not found:
        raise Unsupported("operators")
    return found
