"""Device work that a provider records once and replays: runs with one ``gpu_graph_id`` (run option; default 0, -1 for none)
run normally the first time, are recorded the second time with the same shapes, and from then on replayed on the memory of the recording."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from onnxplug.contract.errors import TERMINATED, EPFail, Fail, InvalidArgument
from onnxplug.contract.memory import HOST
from onnxplug.place import KernelUnit, PlacedGraph, RegionUnit
from onnxplug.plugins import ProviderInstance
from onnxplug.run import DeviceArray, GraphRunner, Memories
from onnxplug.session.arguments import GRAPH_ID
from onnxplug.session.hooks import hook
from onnxplug.session.options import RunOptions

_HOOKS = ("is_graph_captured", "begin_capture", "end_capture", "replay_graph")
_RELEASE = "release_graph"


class _Recording(NamedTuple):
    """The memory of a recorded run, which replays read and write."""

    shapes: tuple[tuple[int, ...], ...]
    inputs: list[DeviceArray]
    results: list[Any]
    frame: Any


class Capture:
    """The recordings of one session, by id. ``calls`` are the provider's hooks, in the order of ``_HOOKS``; ``forget`` is its hook to
    release a recording."""

    def __init__(
        self, provider: str, calls: Sequence[Callable[[int], Any]], forget: Callable[[int], Any], memories: Memories
    ) -> None:
        self.provider, self.calls, self.forget, self.memories = provider, calls, forget, memories
        self.warm: dict[int, tuple[tuple[int, ...], ...]] = {}
        """Shapes of the last normal run of an id."""
        self.recordings: dict[int, _Recording] = {}
        self.lock = threading.Lock()

    def run(self, graph_id: int, runner: GraphRunner, inputs: Sequence[Any], options: RunOptions | None) -> list[Any]:
        """Results for native inputs. InvalidArgument for inputs of other shapes than those of the recording."""
        is_captured, begin, end, replay = self.calls
        with self.lock:  # a recording has one memory, so its runs come one after the other
            recording = self.recordings.get(graph_id)
            if recording is not None and is_captured(graph_id):
                self._fill(graph_id, recording, inputs)
                replay(graph_id)
                return self._copies(recording)
            if self.warm.get(graph_id) != (shapes := _shapes(inputs)):
                self.warm[graph_id] = shapes  # what is set up for shapes in a first run cannot be recorded
                return runner.run(inputs, options)
            homes = [device for _, device in runner.placed.inputs]
            held = [self.memories.move(native, home, home) for native, home in zip(inputs, homes, strict=True)]
            frame = runner.own_frame(inputs)  # with its plan and constants, of which none is to be recorded
            begin(graph_id)
            try:
                results = runner.record(frame, [each.native for each in held], options)
            except Exception as error:
                with suppress(EPFail):  # it says less than what the run says
                    end(graph_id)
                with suppress(EPFail):
                    self.forget(graph_id)
                raise _unrecorded(self.provider, error) from error
            end(graph_id)
            self.recordings[graph_id] = recording = _Recording(shapes, held, results, frame)
            if not is_captured(graph_id):
                del self.recordings[graph_id]
                return results
            replay(graph_id)  # recording is not running
            return self._copies(recording)

    def release(self, graph_id: int) -> None:
        """Forget a recording and free its memory."""
        with self.lock:
            self.warm.pop(graph_id, None)
            try:
                self.forget(graph_id)
            finally:
                self.recordings.pop(graph_id, None)

    def _fill(self, graph_id: int, recording: _Recording, inputs: Sequence[Any]) -> None:
        if _shapes(inputs) != recording.shapes:
            raise InvalidArgument(
                f"{GRAPH_ID} {graph_id} was recorded for input shapes {list(recording.shapes)}, not {list(_shapes(inputs))}; "
                f"give other shapes another {GRAPH_ID}, or call release_captured_graph({graph_id})"
            )
        for native, held in zip(inputs, recording.inputs, strict=True):
            stream = recording.frame.stream(held.device)
            self.memories.copy(native, held.device, held.native, held.device, stream)

    def _copies(self, recording: _Recording) -> list[Any]:
        """The results, which the next replay will overwrite, in memory of their own."""
        stream = recording.frame.stream
        return [self.memories.move(r.native, r.device, r.device, stream(r.device)) for r in recording.results]


def capture_of(instances: Sequence[ProviderInstance], main: PlacedGraph, memories: Memories) -> Capture | None:
    """The recordings of a session whose whole graph, inputs and outputs included, is on one provider that records; else
    None."""
    owners = {u.provider.name if isinstance(u, KernelUnit | RegionUnit) else None for u in main.units}
    devices = {device for _, device in (*main.inputs, *main.outputs)}
    instance = next((i for i in instances if owners == {i.name}), None)
    if instance is None or HOST in devices or len(devices) != 1:
        return None
    calls = [call for name in _HOOKS if (call := hook(instance, name)) is not None]
    forget = hook(instance, _RELEASE) or (lambda graph_id: None)
    return Capture(instance.name, calls, forget, memories) if len(calls) == len(_HOOKS) else None


def _unrecorded(provider: str, error: Exception) -> Exception:
    """What a failed recording ends in: a run like it that was not recorded went well, so that the recording is to blame."""
    if isinstance(error, Fail) and error.text == TERMINATED:
        return error
    text = getattr(error, "text", None) or f"{type(error).__name__}: {error}"
    failure = EPFail(
        f"the run cannot be recorded: {text}. Run it without a recording: run option {GRAPH_ID}=-1, or the provider's option that asks for "
        "recordings left out"
    )
    failure.provider = provider  # whom run-time fallback leaves out
    return failure


def _shapes(inputs: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(native.shape) for native in inputs)
