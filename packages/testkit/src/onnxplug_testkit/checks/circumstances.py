"""L3 and L4: the same computation in other circumstances. None of them may show in a result."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx

import onnxplug
from onnxplug.contract.errors import STATUS_ERRORS, TERMINATED
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.graph import agree
from onnxplug_testkit.checks.patterns import behind, exported, products
from onnxplug_testkit.models import chain, dag, expected, open_session
from onnxplug_testkit.subject import Subject

THREADS = (1, 2, 3, 8)
"""Values of intra_op_num_threads."""
PLACES = 20
"""At so many places of what is exported a byte is changed."""
_BLOB = "ep_cache_context"
"""Attribute of EPContext nodes that holds what was exported."""
MOST = 60
"""How often a run is looked at that asks whether it is to stop."""


@check("graph.feeds_at_any_address")
def feeds_at_any_address(subject: Subject, seed: int) -> None:
    """Inputs may lie at any address, in any order and with gaps, and need not be writable."""
    made = chain(subject)
    x = np.random.default_rng(seed).standard_normal((7, 16)).astype(np.float32)
    with open_session(subject, made) as session:
        for what, arrange in _LAYOUTS.items():
            fed = arrange(x)
            assert np.array_equal(fed, x)
            agree(session.run(None, {"x": fed}), expected(made, {"x": x}, subject.name), what=what)


@check("graph.profiled_runs")
def profiled_runs(subject: Subject, seed: int) -> None:
    """A run that is profiled gives the oracle's results; the provider's events name nodes of the graph and lie within the run."""
    rng = np.random.default_rng(seed)
    made = dag(subject, rng)
    with tempfile.TemporaryDirectory() as folder:

        def profiled(settings: onnxplug.SessionOptions) -> None:
            settings.enable_profiling = True
            settings.profile_file_prefix = str(Path(folder, "profile"))

        with open_session(subject, made, configure=profiled) as session:
            for rows in (5, 1, 5):
                feeds = {name: rng.standard_normal((rows, 16)).astype(np.float32) for name in ("x", "z")}
                agree(session.run(None, feeds), expected(made, feeds, subject.name), what="profiled")
            events = json.loads(Path(session.end_profiling()).read_text())
    runs = [_span(e) for e in events if e["name"] == "model_run"]
    names = {node.name for node in made.graph.node}
    for event in (e for e in events if e["cat"] == "Kernel"):
        told = set(event["args"]["nodes"])
        assert told and told <= names, (
            f"an event of the profile tells of nodes that are not there: {sorted(told - names)}"
        )
        start, end = _span(event)
        assert start <= end and any(first <= start and end <= last for first, last in runs), (
            f"the event of {sorted(told)} lies outside every run: it gives {start} to {end} us. `watch` takes start and end in "
            "nanoseconds of time.perf_counter_ns"
        )


@check("graph.explained")
def explained(subject: Subject, seed: int) -> None:
    """``explain()`` shows every node, and what regions tell of themselves, which is fit for JSON, before a run and after one."""
    rng = np.random.default_rng(seed)
    for made in products(subject, rng):
        with open_session(subject, made, *behind(subject)) as session:
            for rows in (5, 2, 0):
                told = session.explain().to_dict()
                shown = {node["name"] for node in told["nodes"]}
                assert shown == set(session.placement()), f"explain() shows {sorted(shown)} of the nodes"
                for region in told["regions"]:
                    failure = region["facts"].get("facts")
                    assert failure is None, f"facts() of a region fails: {failure}"
                    try:
                        json.dumps(region["facts"], allow_nan=False)
                    except (TypeError, ValueError) as error:
                        raise AssertionError(
                            f"facts() of a region gives what JSON does not know: {region['facts']}"
                        ) from error
                x = rng.uniform(-1, 1, (rows, 16)).astype(np.float32)
                agree(session.run(None, {"x": x}), expected(made, {"x": x}, subject.name), what="when it was explained")


@check("robust.thread_counts")
def thread_counts(subject: Subject, seed: int) -> None:
    """Results do not depend on intra_op_num_threads but for rounding."""
    made, feeds, want = _example(subject, seed, 67)
    for count in THREADS:

        def threaded(settings: onnxplug.SessionOptions, count: int = count) -> None:
            settings.intra_op_num_threads = count

        with open_session(subject, made, configure=threaded) as session:
            agree(session.run(None, feeds), want, what=f"intra_op_num_threads = {count}")


@check("robust.terminated_runs")
def terminated_runs(subject: Subject, seed: int) -> None:
    """A run that is told to stop, at any time, raises or is right, and the next one is right."""
    made, feeds, want = _example(subject, seed)
    with open_session(subject, made) as session:
        for asked in range(MOST):
            stopping = _Stopping(asked)
            try:
                got = session.run(None, feeds, stopping)
            except STATUS_ERRORS as error:
                assert TERMINATED in str(error), (
                    f"a run that was told to stop does not end with Fail(TERMINATED), of onnxplug.contract.errors: {error}"
                )
            else:
                agree(got, want, what=f"a run that was told to stop when it had asked {asked} times")
            agree(session.run(None, feeds), want, what="the run after one that was told to stop")
            if stopping.asked <= asked:
                break


class _Stopping(onnxplug.RunOptions):
    """Says that the run is to stop once that was asked ``after`` times."""

    __slots__ = ("after", "asked")

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.asked = after, 0

    @property
    def terminate(self) -> bool:  # type: ignore[override]
        self.asked += 1
        return self.asked > self.after


@check("robust.damaged_cache")
def damaged_cache(subject: Subject, seed: int) -> None:
    """What was kept on disk may be damaged, cut short or gone: sessions are made and right all the same."""
    made, feeds, want = _example(subject, seed)

    def judge(what: str) -> None:
        try:
            with open_session(subject, made) as session:
                got = session.run(None, feeds)
        except Exception as error:
            raise AssertionError(f"{what} in ONNXPLUG_CACHE_DIR, {type(error).__name__}: {error}") from error
        agree(got, want, what=f"{what} in ONNXPLUG_CACHE_DIR")

    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, ONNXPLUG_CACHE_DIR=folder):
        judge("with no file")
        judge("with the files of another session")
        for what, damage in _DAMAGES.items():
            for path in (p for p in Path(folder).rglob("*") if p.is_file()):
                path.write_bytes(damage(path.read_bytes()))
            judge(what)


@check("robust.damaged_exports")
def damaged_exports(subject: Subject, seed: int) -> None:
    """A model whose exported region is damaged, cut short or gone is refused with an error, or gives right results all the same."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((5, 16)).astype(np.float32)
    met = False
    for made in products(subject, rng):
        if (compiled := exported(subject, made)) is None:
            continue
        met, want = True, expected(made, {"x": x}, subject.name)
        for what, damage in _damages(rng):
            proto = onnx.load_from_string(compiled)
            for attribute in (a for node in proto.graph.node for a in node.attribute if a.name == _BLOB):
                attribute.s = damage(attribute.s)
            try:
                with open_session(subject, proto, *behind(subject)) as session:
                    got = session.run(None, {"x": x})
            except STATUS_ERRORS:
                continue
            except Exception as error:
                raise AssertionError(f"{what} in an exported region, {type(error).__name__}: {error}") from error
            agree(got, want, what=f"{what} in an exported region")
    if not met:
        raise Unsupported("exports")


def _damages(rng: np.random.Generator) -> Iterator[tuple[str, Callable[[bytes], bytes]]]:
    """What was done to a blob, and what does it."""
    yield from _DAMAGES.items()
    for share in (0, 1, *rng.uniform(0, 1, PLACES)):
        yield "with a wrong byte", partial(_wrong, share=float(share))


def _wrong(data: bytes, share: float = 0.5) -> bytes:
    """With another byte at some place between the first and the last."""
    at = int(share * (len(data) - 1))
    return data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]


def _example(subject: Subject, seed: int, rows: int = 5) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[Any]]:
    """A model, inputs of so many rows, and the oracle's results."""
    rng = np.random.default_rng(seed)
    made = dag(subject, rng)
    feeds = {name: rng.standard_normal((rows, 16)).astype(np.float32) for name in ("x", "z")}
    return made, feeds, expected(made, feeds, subject.name)


def _span(event: dict[str, Any]) -> tuple[int, int]:
    return event["ts"], event["ts"] + event["dur"]


def _offset(x: np.ndarray, nbytes: int) -> np.ndarray:
    raw = np.zeros(x.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + nbytes
    made = raw[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    made[...] = x
    return made


def _with_gaps(x: np.ndarray) -> np.ndarray:
    made = np.full((x.shape[0] * 2, x.shape[1] * 3), np.nan, x.dtype)[::2, ::3]
    made[...] = x
    return made


def _read_only(x: np.ndarray) -> np.ndarray:
    made = x.copy()
    made.flags.writeable = False
    return made


_LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "an input in the order of columns": np.asfortranarray,
    "an input with gaps": _with_gaps,
    "an input that lies backwards": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "an input at an odd address": lambda x: _offset(x, 1),
    "an input that begins with no vector": lambda x: _offset(x, x.itemsize),
    "an input that is read only": _read_only,
}
_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "with a wrong byte": _wrong,
    "cut short": lambda data: data[: len(data) // 2],
    "nothing": lambda data: b"",
}
