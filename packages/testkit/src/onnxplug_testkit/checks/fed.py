"""L3: memory that the caller uses again: the same arrays fed and bound time after time, with other contents and over each other."""

from __future__ import annotations

import numpy as np

import onnxplug
from onnxplug_testkit.check import check
from onnxplug_testkit.checks.graph import ROWS, agree
from onnxplug_testkit.models import dag, expected, open_session
from onnxplug_testkit.rounding import bounds
from onnxplug_testkit.subject import Subject

GRAPHS, TURNS = 3, 3
SIDE = 16


@check("graph.fed_again")
def fed_again(subject: Subject, seed: int) -> None:
    """Arrays fed and bindings run again give results of what they hold then, also one array for two inputs and results over an input."""
    value = onnxplug.OrtValue.ortvalue_from_numpy
    for number in range(GRAPHS):
        rng = np.random.default_rng([seed, number])
        made = dag(subject, rng)
        names = [output.name for output in made.graph.output]
        with open_session(subject, made) as session:
            for rows in (5, ROWS):
                feeds = {name: np.empty((rows, SIDE), np.float32) for name in ("x", "z")}
                rooms = {name: np.full((rows, SIDE), np.nan, np.float32) for name in names}
                over = {**rooms, str(rng.choice(names)): feeds["x"]}
                bindings = {"bound again": rooms, "bound again, a result over its own input": over}

                def judge(results: list[np.ndarray], given: dict[str, np.ndarray], what: str) -> None:
                    errors = [2 * error for error in bounds(made, given)]  # noqa: B023  called at once
                    agree(results, expected(made, given, subject.name), errors, what)  # noqa: B023

                def draw() -> dict[str, np.ndarray]:
                    for array in feeds.values():  # noqa: B023
                        array[...] = rng.standard_normal(array.shape)  # noqa: B023
                    return {name: array.copy() for name, array in feeds.items()}  # noqa: B023

                for _ in range(TURNS):
                    given = draw()
                    judge(session.run(None, feeds), given, "arrays fed again with other contents")
                twice = dict.fromkeys(feeds, feeds["x"])
                judge(
                    session.run(None, twice),
                    {name: array.copy() for name, array in twice.items()},
                    "one array fed twice",
                )
                for what, places in bindings.items():
                    binding = session.io_binding()
                    for name, array in feeds.items():
                        binding.bind_ortvalue_input(name, value(array))
                    for name, array in places.items():
                        binding.bind_ortvalue_output(name, value(array))
                    for _ in range(TURNS):
                        given = draw()
                        session.run_with_iobinding(binding)
                        judge([*places.values()], given, what)
