"""Streams, events and recordings of a device that does what it is asked for as late as CUDA's rules allow: what nobody waits for is not
done, so that a missing wait shows."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

Work = Callable[[], None]
NOT_READY, CAPTURED = 600, 907
LEGACY = 0


@dataclass
class _Graph:
    """A recording: its work in the order it was asked for, the streams that take part, and those whose end was waited for."""

    origin: int
    work: list[Work] = field(default_factory=list)
    streams: dict[int, int] = field(default_factory=dict)
    """Stream that joined -> how much of the work there is after its last that the first stream has waited for; 0: all."""


@dataclass
class _Stream:
    todo: deque[Work] = field(default_factory=deque)
    asked: int = 0
    done: int = 0


class Queues:
    """See the module's text. ``eager``: everything is done at once. ``uneven``: every second stream does at once what it may."""

    def __init__(self, *, eager: bool = False, uneven: bool = False) -> None:
        self.eager, self.uneven = eager, uneven
        self._prompt: dict[int, bool] = {}
        self.broken: list[str] = []
        self.graphs: dict[int, list[Work]] = {}
        self._streams: dict[int, _Stream] = defaultdict(_Stream)
        self._blocking: set[int] = {0, 1, 2}
        self._events: dict[int, tuple[int, int]] = {}
        self._marked: dict[int, tuple[_Graph, int]] = {}
        self._recording: dict[int, _Graph] = {}

    @property
    def recording(self) -> bool:
        """Whether a stream is recorded."""
        return bool(self._recording)

    def is_recording(self, stream: int) -> bool:
        """Whether this one is."""
        return stream in self._recording

    def create(self, stream: int, *, blocking: bool) -> None:
        """A stream. Those that wait for the legacy stream, and it for them, are one with it."""
        if blocking:
            self._blocking.add(stream)
        else:
            self._prompt[stream] = self.uneven and len(self._prompt) % 2 == 1

    def put(self, stream: int, work: Work) -> None:
        """Ask for something."""
        if (graph := self._recording.get(stream)) is not None:
            graph.work.append(work)
            if stream != graph.origin:
                graph.streams[stream] = len(graph.work)
            return
        if stream in self._blocking and any(s in self._blocking for s in self._recording):
            self.broken.append("the legacy stream is used while a stream that waits for it is recorded")
        queue = self._of(stream)
        queue.todo.append(work)
        queue.asked += 1
        if self.eager or self._prompt.get(stream):
            self.drain(stream)

    def now(self, stream: int, work: Work) -> None:
        """Do something when all is done that the stream was asked for."""
        if stream in self._recording:
            self.put(stream, work)
        else:
            self.drain(stream)
            work()

    def drain(self, stream: int) -> None:
        """cudaStreamSynchronize."""
        if stream in self._recording:
            self.broken.append("a stream is waited for while it is recorded")
            return
        queue = self._of(stream)
        self._until(queue, queue.asked)

    def drain_all(self) -> None:
        """cudaDeviceSynchronize."""
        if self._recording:
            self.broken.append("the device is waited for while a stream is recorded")
        for queue in list(self._streams.values()):
            self._until(queue, queue.asked)

    def is_idle(self, stream: int) -> bool:
        """Whether all is done."""
        queue = self._of(stream)
        return queue.done == queue.asked

    # ---- events

    def record(self, event: int, stream: int) -> None:
        """cudaEventRecord."""
        if (graph := self._recording.get(stream)) is not None:
            self._events.pop(event, None)
            self._marked[event] = graph, stream
        else:
            self._marked.pop(event, None)
            self._events[event] = self._key(stream), self._of(stream).asked

    def wait(self, stream: int, event: int) -> None:
        """cudaStreamWaitEvent."""
        if event in self._marked:
            graph, of = self._marked[event]
            if self._recording.get(stream) is None and graph in self._recording.values():
                self._recording[stream] = graph
                graph.streams[stream] = 0
            if stream == graph.origin and of in graph.streams:
                graph.streams[of] = 0
            return
        if event not in self._events:
            return
        if stream in self._recording:
            self.broken.append("a stream that is recorded waits for an event from outside")
            return
        key, asked = self._events[event]
        if key != self._key(stream):
            self.put(stream, lambda: self._until(self._streams[key], asked))

    def is_past(self, event: int) -> int:
        """cudaEventQuery's status."""
        if event in self._marked:
            self.broken.append("an event that was recorded into a CUDA graph is asked for")
            return CAPTURED
        key, asked = self._events.get(event, (LEGACY, 0))
        return 0 if self._streams[key].done >= asked else NOT_READY

    def reach(self, event: int) -> None:
        """cudaEventSynchronize."""
        if event in self._marked:
            self.broken.append("an event that was recorded into a CUDA graph is waited for")
        elif event in self._events:
            key, asked = self._events[event]
            self._until(self._streams[key], asked)

    def forget(self, event: int) -> None:
        """cudaEventDestroy."""
        self._events.pop(event, None)
        self._marked.pop(event, None)

    # ---- recordings

    def begin(self, stream: int) -> None:
        """cudaStreamBeginCapture."""
        if stream in self._recording:
            self.broken.append("a recording is begun inside another")
        self._recording[stream] = _Graph(stream)

    def end(self, stream: int, handle: int) -> None:
        """cudaStreamEndCapture."""
        graph = self._recording.pop(stream, None)
        if graph is None or graph.origin != stream:
            self.broken.append("a recording is ended that was not begun")
            return
        if any(graph.streams.values()):
            self.broken.append("a recording ends without work of another stream that joined it")
        self._recording = {s: g for s, g in self._recording.items() if g is not graph}
        self.graphs[handle] = graph.work

    def replay(self, handle: int, stream: int) -> None:
        """cudaGraphLaunch."""
        for work in self.graphs[handle]:
            self.put(stream, work)

    # ----

    def _key(self, stream: int) -> int:
        return LEGACY if stream in self._blocking else stream

    def _of(self, stream: int) -> _Stream:
        return self._streams[self._key(stream)]

    @staticmethod
    def _until(queue: _Stream, asked: int) -> None:
        while queue.done < asked and queue.todo:
            work = queue.todo.popleft()
            queue.done += 1
            work()
