"""L4: what shows only in processes of their own: how they end, and whether two of them agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxplug_testkit import apart
from onnxplug_testkit.apart import ENDED
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks import robust
from onnxplug_testkit.checks.graph import agree
from onnxplug_testkit.checks.patterns import behind, exported, products
from onnxplug_testkit.models import dag, expected, open_session
from onnxplug_testkit.subject import Subject

GRAPHS = 4
"""Random graphs that each process opens."""
SLOWER = 5
"""By how much more patience a process is met with than a thread: it imports all anew."""
HASHES = ("1", "2")
"""Values of PYTHONHASHSEED: the order of a set of strings is another with each."""


@check("robust.exit_is_quiet")
def exit_is_quiet(subject: Subject, seed: int) -> None:
    """A process that leaves sessions open ends at once, without a word, and with its own status."""
    with tempfile.TemporaryDirectory() as folder:
        _prepare(subject, seed, Path(folder))
        done = _run(subject, Path(folder), HASHES[0])
    assert not done.stderr.strip(), f"a process that left sessions open says {done.stderr.strip()[-300:]!r}"


@check("robust.same_in_processes")
def same_in_processes(subject: Subject, seed: int) -> None:
    """Another process, in which strings have other hashes, places the same graphs alike and gets the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        _prepare(subject, seed, Path(folder))
        one, two = (json.loads(_run(subject, Path(folder), value).stdout.splitlines()[-1]) for value in HASHES)
    for mine, other in zip(one, two, strict=True):
        moved = sorted(name for name, owner in mine["placement"].items() if other["placement"].get(name) != owner)
        assert not moved, (
            f"another process places {', '.join(moved[:5])} elsewhere: what is claimed depends on hashes of strings"
        )
        assert mine["bits"] == other["bits"], "another process gets other bits from the same data"


@check("robust.same_without_the_kit")
def same_without_the_kit(subject: Subject, seed: int) -> None:
    """A process without the kit and pytest places graphs alike and gets the oracle's results, from exported regions too."""
    with tempfile.TemporaryDirectory() as folder:
        made = _prepare(subject, seed, Path(folder))
        told = json.loads(_run(subject, Path(folder), HASHES[0]).stdout.splitlines()[-1])
        for number, (what, graph, exported) in enumerate(made):
            feeds = dict(np.load(Path(folder, f"{number:02}.npz")))
            results = np.load(Path(folder, f"{number:02}.results.npz"))
            got = [results[name] for name in results.files]
            agree(got, expected(graph, feeds, subject.name), what=f"{what}, in a process without the kit")
            if not exported:
                with open_session(subject, graph, *behind(subject)) as session:
                    here = session.placement()
                moved = sorted(name for name, owner in told[number]["placement"].items() if here.get(name) != owner)
                assert not moved, f"a process without the kit places {', '.join(moved[:5])} elsewhere"


def _prepare(subject: Subject, seed: int, folder: Path) -> list[tuple[str, onnx.ModelProto, bool]]:
    """Models, and what they are fed, in numbered files: what each is, the graph it has or was exported from, and which."""
    if not subject.module:
        raise Unsupported("distribution")
    rng = np.random.default_rng(seed)
    made = [*products(subject, rng), *(dag(subject, rng) for _ in range(GRAPHS))]
    listed = [("a graph", graph, graph.SerializeToString(), False) for graph in made]
    for graph in made[:-GRAPHS]:
        if (compiled := exported(subject, graph)) is not None:
            listed.append(("an exported region", graph, compiled, True))
    for number, (_, graph, content, _) in enumerate(listed):
        feeds: dict[str, Any] = {v.name: rng.standard_normal((5, 16)).astype(np.float32) for v in graph.graph.input}
        Path(folder, f"{number:02}.onnx").write_bytes(content)
        np.savez(Path(folder, f"{number:02}.npz"), **feeds)
    return [(what, graph, of_export) for what, graph, _, of_export in listed]


def _run(subject: Subject, folder: Path, hashes: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-P",
        apart.__file__,
        subject.module,
        subject.name,
        json.dumps(dict(subject.options)),
        str(folder),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": hashes}
    patience = SLOWER * robust.PATIENCE
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False, env=environment)
    except subprocess.TimeoutExpired as error:
        told = "has given its results and does not end" if error.stdout else "gives no result"
        raise AssertionError(f"a process that left sessions open {told} in {patience} seconds") from error
    how = f"is ended by signal {-done.returncode}" if done.returncode < 0 else f"ends with status {done.returncode}"
    assert done.returncode == ENDED, (
        f"a process that left sessions open {how}, not {ENDED}: {done.stderr.strip()[-300:]}"
    )
    return done
