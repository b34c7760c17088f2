"""Runs under a ``gpu_graph_id``: warmed up, recorded, replayed; with a provider that records what it does as device libraries do:
operations with the addresses they worked on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from core_graphs import model, same
from core_providers import CPU, Opaque, OwnProvider, RuleKernel, offered

import onnxplug
from onnxplug.contract import Device, Into
from onnxplug.contract.errors import EPFail, InvalidArgument

ACME = "AcmeExecutionProvider"
DEVICE = Device("acme")
SOURCE = model("g (float[N, 2] x, float[N, 2] y) => (float[N, 2] z) { a = Add(x, y) b = Mul(a, x) z = Neg(b) }")
MIXED = model("g (float[N, 2] x) => (float[N, 2] z) { a = Neg(x) z = Sin(a) }")
X, Y = (np.array([[a, b]], np.float32) for a, b in ((1, 2), (3, 5)))


class RecordingKernel(RuleKernel):
    def __init__(self, kernel: RuleKernel, provider: Recorder) -> None:
        super().__init__(kernel.rule, kernel.form, kernel.device)
        self.provider = provider

    def bind(self, inputs: Any, outputs: Any) -> Into | None:
        bound = super().bind(inputs, outputs)
        return None if bound is None else Into(lambda *operands: self.provider.launch(bound.call, operands))


class Recorder(OwnProvider):
    """Keeps a diary of hook calls, and recordings as lists of (call, operands)."""

    supported = True

    def __init__(self) -> None:
        super().__init__(DEVICE)
        self.diary: list[str] = []
        self.graphs: dict[int, list[tuple[Callable[..., object], tuple[Any, ...]]]] = {}
        self.recording: int | None = None
        self.launches = 0
        if not self.supported:
            self.begin_capture = None  # type: ignore[assignment]

    def _definition(self, op: str, rule: Any, form: str) -> Any:
        import dataclasses

        made = super()._definition(op, rule, form)
        return dataclasses.replace(made, create=lambda node: RecordingKernel(made.create(node), self))

    def launch(self, call: Callable[..., object], operands: tuple[Any, ...]) -> None:
        assert all(isinstance(each, Opaque) for each in operands)
        if self.recording is not None:
            self.graphs[self.recording].append((call, operands))
            return  # recorded work does not run
        self.launches += 1
        call(*operands)

    def is_graph_captured(self, graph_id: int) -> bool:
        return graph_id in self.graphs

    def begin_capture(self, graph_id: int) -> None:
        self.diary.append(f"begin {graph_id}")
        self.graphs[graph_id], self.recording = [], graph_id

    def end_capture(self, graph_id: int) -> None:
        self.diary.append(f"end {graph_id}")
        self.recording = None

    def replay_graph(self, graph_id: int) -> None:
        self.diary.append(f"replay {graph_id}")
        for call, operands in self.graphs[graph_id]:
            call(*operands)


class Queued(Recorder):
    """One with streams, which are numbered; remembers on which of them copies within the device were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.made, self.copied, plain = 0, list[Any](), self.transfer.copy

        def copy(source: Any, destination: Any, stream: Any = None) -> None:
            if isinstance(source, Opaque) and isinstance(destination, Opaque):
                self.copied.append(stream)
            plain(source, destination, stream)

        self.transfer.copy = copy  # type: ignore[method-assign]

    def create_stream(self, device: Device) -> int:
        self.made += 1
        return self.made


def test_copies_of_replays_wait_for_nothing_but_their_stream() -> None:
    with offered("acme", **{ACME: Queued}) as providers:
        opened = session()
        for _ in range(3):
            same(opened.run(None, {"x": X, "y": Y}), [-(X + Y) * X])
        (provider,) = providers[ACME]
        before, last = provider.copied[:2], provider.copied[2:]
        assert before == [None, None]  # into the memory of the recording, which is to begin
        # The results of the recorded run, then of a replay behind its inputs.
        assert len(set(last)) == 1 and None not in last and len(last) == 4


@pytest.fixture
def made() -> Iterator[dict[str, list[Any]]]:
    with offered("acme", **{ACME: Recorder}) as providers:
        yield providers


def session(source: bytes = SOURCE) -> Any:
    return onnxplug.InferenceSession(source, None, [ACME, CPU], enable_fallback=0)


def under(graph_id: Any) -> Any:
    options = onnxplug.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


def expected(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    return [-((x + y) * x)]


def test_the_third_run_is_a_replay(made: dict[str, list[Any]]) -> None:
    sess = session()
    (provider,) = made[ACME]
    results = []
    for factor in range(1, 6):
        results += sess.run(None, {"x": X * factor, "y": Y}, under(7))
        same(results[-1:], expected(X * factor, Y))
    assert provider.diary == ["begin 7", "end 7", *["replay 7"] * 4] and provider.launches == 3
    for factor, result in enumerate(results, 1):
        same([result], expected(X * factor, Y))  # no later replay wrote into it


def test_ids_are_recorded_apart(made: dict[str, list[Any]]) -> None:
    sess = session()
    (provider,) = made[ACME]
    for _ in range(3):
        same(sess.run(None, {"x": X, "y": Y}), expected(X, Y))  # the default id, 0
        two = np.concatenate([X, Y])
        same(sess.run(None, {"x": two, "y": two}, under(1)), expected(two, two))
        same(sess.run(None, {"x": X, "y": X}, under(-1)), expected(X, X))
    assert sorted(provider.graphs) == [0, 1] and provider.diary.count("replay 0") == 2
    with pytest.raises(
        InvalidArgument, match=r"gpu_graph_id 0 was recorded for input shapes .*release_captured_graph\(0\)"
    ):
        sess.run(None, {"x": two, "y": two})
    sess.release_captured_graph(0)
    for _ in range(3):
        same(sess.run(None, {"x": two, "y": two}), expected(two, two))
    with pytest.raises(InvalidArgument, match="Failed to parse the cuda graph annotation id: x"):
        sess.run(None, {"x": X, "y": Y}, under("x"))


def test_only_shapes_that_ran_before_are_recorded(made: dict[str, list[Any]]) -> None:
    sess = session()
    (provider,) = made[ACME]
    two = np.concatenate([X, Y])
    for x, diary in ((X, []), (two, []), (two, ["begin 0", "end 0", "replay 0"]), (two, ["replay 0"])):
        before = len(provider.diary)
        same(sess.run(None, {"x": x, "y": x}), expected(x, x))
        assert provider.diary[before:] == diary


def test_a_plan_is_made_before_its_run_is_recorded(made: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed ahead, and sent to the device, would be recorded, too, and its results read before a replay."""
    sess, plain, seen = session(), RecordingKernel.bind, list[Any]()

    def bind(self: RecordingKernel, inputs: Any, outputs: Any) -> Into | None:
        seen.append(self.provider.recording)
        return plain(self, inputs, outputs)

    monkeypatch.setattr(RecordingKernel, "bind", bind)
    for _ in range(3):
        same(sess.run(None, {"x": X, "y": Y}), expected(X, Y))
        sess._engine.built.runner.plans.kept.clear()
    assert seen == [None] * 6 and "replay 0" in made[ACME][0].diary


class Reading(Recorder):
    """Cannot record a sum: its kernel reads on the host."""

    def launch(self, call: Callable[..., object], operands: tuple[Any, ...]) -> None:
        if self.recording is not None:
            raise NotImplementedError("no copies to the host here")
        super().launch(call, operands)

    def end_capture(self, graph_id: int) -> None:
        super().end_capture(graph_id)
        raise EPFail("half a recording")


def test_what_cannot_be_recorded_is_an_error_of_the_recording_not_of_the_node() -> None:
    with offered("acme", **{ACME: Reading}) as providers:
        opened = session()
        same(opened.run(None, {"x": X, "y": Y}), expected(X, Y))
        with pytest.raises(
            EPFail, match=r"cannot be recorded: .*no copies to the host here.*gpu_graph_id=-1"
        ) as caught:
            opened.run(None, {"x": X, "y": Y})
        (provider,) = providers[ACME]
        assert caught.value.provider == ACME and provider.recording is None
        same(opened.run(None, {"x": X, "y": Y}, under(-1)), expected(X, Y))


class Releasing(Recorder):
    """One with the hook to forget."""

    def release_graph(self, graph_id: int) -> None:
        self.diary.append(f"release {graph_id}")
        self.graphs.pop(graph_id, None)


def test_what_is_released_is_recorded_anew() -> None:
    with offered("acme", **{ACME: Releasing}) as providers:
        opened = session()
        for _ in range(3):
            same(opened.run(None, {"x": X, "y": Y}), expected(X, Y))
        (provider,) = providers[ACME]
        opened.release_captured_graph()
        assert provider.diary[-1] == "release 0" and not provider.graphs and not opened._engine.capture.recordings
        opened.release_captured_graph(5)  # of which there is none
        before = len(provider.diary)
        for _ in range(2):
            same(opened.run(None, {"x": X, "y": X}), expected(X, X))
        assert provider.diary[before:] == ["begin 0", "end 0", "replay 0"]


def test_half_a_recording_is_released() -> None:
    class Both(Reading, Releasing):
        pass

    with offered("acme", **{ACME: Both}) as providers:
        opened = session()
        opened.run(None, {"x": X, "y": Y})
        with pytest.raises(EPFail, match="no copies to the host here"):
            opened.run(None, {"x": X, "y": Y})
        assert providers[ACME][0].diary == ["begin 0", "end 0", "release 0"] and not providers[ACME][0].graphs


def test_bound_memory_keeps_its_address(made: dict[str, list[Any]]) -> None:
    sess = session()
    x, y = (onnxplug.OrtValue.ortvalue_from_numpy(a, "acme") for a in (X, Y))
    z = onnxplug.OrtValue.ortvalue_from_shape_and_type([1, 2], np.float32, "acme")
    binding = sess.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_input("y", y)
    binding.bind_ortvalue_output("z", z)
    for factor in range(1, 5):
        x.update_inplace(X * factor)
        sess.run_with_iobinding(binding)
        same([z.numpy()], expected(X * factor, Y))
    assert "replay 0" in made[ACME][0].diary


def test_only_sessions_that_are_wholly_on_the_provider_record(
    made: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = session(MIXED)
    assert mixed._engine.capture is None
    for _ in range(3):
        same(mixed.run(None, {"x": X}, under(0)), [np.sin(-X)])
    mixed.release_captured_graph()
    monkeypatch.setattr(Recorder, "supported", False)
    without = session()
    for _ in range(3):
        same(without.run(None, {"x": X, "y": Y}), expected(X, Y))
    assert not any(provider.diary for provider in made[ACME])


def test_a_recording_goes_with_its_session(made: dict[str, list[Any]]) -> None:
    sess = session()
    for _ in range(3):
        sess.run(None, {"x": X, "y": Y})
    provider = made[ACME][0]
    provider.graphs.clear()
    sess.close()
    assert provider.closed  # which asserts that no memory is left
