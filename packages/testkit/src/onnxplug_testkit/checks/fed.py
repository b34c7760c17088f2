"""L3: memory that the caller uses again: the same arrays fed and bound time after time, with other contents and over each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import onnxplug
from onnxplug_testkit.check import check
from onnxplug_testkit.checks.graph import ROWS, agree
from onnxplug_testkit.models import bound, dag, expected, open_session
from onnxplug_testkit.rounding import bounds
from onnxplug_testkit.space import place_of
from onnxplug_testkit.subject import Subject

GRAPHS, TURNS = 3, 3
SIDE = 16

Arrays = Mapping[str, np.ndarray]


@check("graph.fed_again")
def fed_again(subject: Subject, seed: int) -> None:
    """Arrays fed and bindings run again give results of what they hold then, also one array for two inputs and results over an input."""
    for number in range(GRAPHS):
        rng = np.random.default_rng([seed, number])
        made = dag(subject, rng)
        names = [output.name for output in made.graph.output]

        def judge(results: Any, given: Arrays, what: str, made: Any = made) -> None:
            agree(results, expected(made, given, subject.name), [2 * error for error in bounds(made, given)], what)

        with open_session(subject, made) as session:
            for rows in (5, ROWS):
                feeds = {name: np.empty((rows, SIDE), np.float32) for name in ("x", "z")}
                rooms = {name: np.full((rows, SIDE), np.nan, np.float32) for name in names}
                over = {**rooms, str(rng.choice(names)): feeds["x"]}
                for what, run in _runs(session, feeds, rooms, over).items():
                    for _ in range(TURNS):
                        for array in feeds.values():
                            array[...] = rng.standard_normal(array.shape)
                        given = {name: array.copy() for name, array in feeds.items()}
                        judge(run(), given, what)
                twice = dict.fromkeys(feeds, feeds["z"])
                judge(
                    session.run(None, twice),
                    {name: array.copy() for name, array in twice.items()},
                    "one array fed twice",
                )


def _runs(
    session: onnxplug.InferenceSession, feeds: Arrays, rooms: Arrays, over: Arrays
) -> dict[str, Callable[[], Any]]:
    """Ways to run the session on what ``feeds`` hold then, by what they are called."""

    def into(places: Arrays) -> Callable[[], Any]:
        binding = bound(session, feeds, places)

        def run() -> Any:
            session.run_with_iobinding(binding)
            return [*places.values()]

        return run

    return {
        "arrays fed again with other contents": partial(session.run, None, feeds),
        "bound again": into(rooms),
        "bound again, a result over its own input": into(over),
    }


@check("graph.bound_anew")
def bound_anew(subject: Subject, seed: int) -> None:
    """A binding goes by what is bound last: operands bound anew before a run or after one, of other sizes, elsewhere, or fewer."""
    rng = np.random.default_rng(seed)
    made = dag(subject, rng)
    with open_session(subject, made) as session:
        binding = session.io_binding()
        for rows in (5, ROWS, 3):
            _Rebinding(subject, made, session, binding, rng, rows).tried()


class _Rebinding:
    """A binding, and two sets of arrays of so many rows that are fed and two that results are bound to."""

    def __init__(
        self, subject: Subject, made: Any, session: Any, binding: onnxplug.IOBinding, rng: np.random.Generator, rows: int
    ) -> None:  # fmt: skip
        self.subject, self.made, self.session, self.binding, self.rng = subject, made, session, binding, rng
        self.names = [output.name for output in made.graph.output]
        self.fed = [{name: np.empty((rows, SIDE), np.float32) for name in ("x", "z")} for _ in range(2)]
        self.rooms = [{name: np.full((rows, SIDE), np.nan, np.float32) for name in self.names} for _ in range(2)]

    def tried(self) -> None:
        """AssertionError where a run reads or writes what is not bound any more."""
        (one, other), (first, second) = self.fed, self.rooms
        self.bind(fed=one, rooms=first)
        self.bind(rooms=second)
        self.judge("results bound elsewhere before a run", one, [*second.values()], [*first.values()])
        self.bind(fed=other)
        self.judge("inputs bound anew", other, [*second.values()], [*first.values()])
        self.bind(rooms=first)
        self.judge("results bound elsewhere after a run", other, [*first.values()], [*second.values()])
        self.bind(fed=one)
        self.judge("inputs bound as before", one, [*first.values()], [*second.values()])
        everything = [*first.values(), *second.values()]
        for where in (place_of(self.subject), ("cpu", 0)):
            for name in self.names:
                self.binding.bind_output(name, *where)
            self.judge(f"results bound to {where[0]}", one, None, everything)
        self.binding.clear_binding_outputs()
        self.bind(rooms={self.names[-1]: second[self.names[-1]]})
        self.judge("one result of several", one, everything[-1:], everything[:-1], self.names[-1:])
        self.binding.clear_binding_outputs()

    def bind(self, fed: Arrays | None = None, rooms: Arrays | None = None) -> None:
        """Bind these anew, and leave the rest as it is bound."""
        value = onnxplug.OrtValue.ortvalue_from_numpy
        for name, array in (fed or {}).items():
            self.binding.bind_ortvalue_input(name, value(array))
        for name, array in (rooms or {}).items():
            self.binding.bind_ortvalue_output(name, value(array))

    def judge(
        self, what: str, fed: Arrays, into: Sequence[np.ndarray] | None, apart: Sequence[np.ndarray], names: Sequence[str] = ()
    ) -> None:  # fmt: skip
        """Several runs on other contents of ``fed``; ``into``: where results are to be, None: where the binding has them."""
        places = [self.names.index(name) for name in names or self.names]
        kept = [array.copy() for array in apart]
        for _ in range(TURNS):
            for array in fed.values():
                array[...] = self.rng.standard_normal(array.shape)
            self.session.run_with_iobinding(self.binding)
            got = self.binding.copy_outputs_to_cpu() if into is None else into
            errors, want = bounds(self.made, fed), expected(self.made, fed, self.subject.name)
            agree(got, [want[at] for at in places], [2 * errors[at] for at in places], what)
        for array, before in zip(apart, kept, strict=True):
            assert array.tobytes() == before.tobytes(), f"{what}: a run writes where nothing is bound any more"
