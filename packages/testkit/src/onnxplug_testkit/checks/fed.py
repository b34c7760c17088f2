"""L3: memory that the caller uses again: the same arrays fed and bound time after time, with other contents and over each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import onnxplug
from onnxplug_testkit.check import check
from onnxplug_testkit.checks.graph import ROWS, agree
from onnxplug_testkit.models import bound, dag, expected, open_session
from onnxplug_testkit.rounding import bounds
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
