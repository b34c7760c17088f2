"""``python -m fuzz.hunt FIRST LAST``: programs of these seeds on all contenders; what differs is made small and kept in a folder."""

from __future__ import annotations

import argparse
import faulthandler
import os
import pathlib
import pickle
import random
import subprocess
import sys
import time
from collections import Counter
from typing import Any
from unittest import mock

from onnx import ModelProto

from fuzz.contend import CONTENDERS, Feeds, onnxruntime
from fuzz.corners import corner
from fuzz.damage import damaged
from fuzz.grow import grow
from fuzz.judge import Finding, judge, verdict
from fuzz.nets import network
from fuzz.shrink import shrink
from fuzz.wrap import wrap
from fuzz.written import misfit, written

LONGEST = 300
"""Seconds that one seed may take."""
Damaged = tuple[str, ModelProto, list[dict[str, Any]]]
"""What is wrong with a model, the model, and what to feed it."""
OPSETS = (23, 21, 17, 13, 18, 22, 20)


def program_of(seed: int, corners: bool = False, text: bool = False) -> tuple[ModelProto, list[dict[str, Any]]]:
    """The model of a seed, and what to feed it; with ``corners`` one operator on extreme values, with ``text`` one of ``fuzz.written``."""
    chance = random.Random(seed)
    opset = chance.choice(OPSETS)
    if text:
        program, outputs = written(chance)
        declared = chance.choice(("shape", "rank", "names"))
    elif corners:
        program, outputs = corner(chance, opset)
        declared = chance.choice(("shape", "rank", "names"))
    elif seed % 2:
        program, outputs = network(chance, opset)
        declared = chance.choice(("shape", "free"))
    else:
        program = grow(chance, opset, chance.choice((4, 8, 16, 24)))
        outputs = program.ends()
        outputs += [name for name in program.made() if name not in outputs and chance.random() < 0.15]
        declared = chance.choice(("shape", "rank", "names"))
        for _ in range(chance.choice((0, 0, 1, 2))):
            wrap(chance, program)
    runs = [program.feeds()]
    if not text and declared in ("free", "rank"):
        runs += [program.other_feeds(chance, (1, 2, 3, 5, 8, 16, 33)) for _ in range(chance.choice((2, 2, 12)))]
        runs += runs[:1]  # the plan of the first shapes again, or one that goes by no shapes
    return program.model(outputs, declared), runs


def contenders_of(seed: int) -> list[str]:
    """Generated code and NumPy for every seed, other targets in turn. OpenCL, which compiles for seconds, only where it is asked for."""
    others = [name for name in CONTENDERS if name not in ("native", "numpy", "opencl")]
    return ["numpy", "native", others[seed % len(others)]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/fuzz"))
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--corners", action="store_true", help="operators on extreme values, one by one")
    parser.add_argument(
        "--written", action="store_true", help="operators whose kernels are text, com.microsoft's among them"
    )
    parser.add_argument(
        "--damage", action="store_true", help="models of onnx's tests, or --written, with something changed"
    )
    parser.add_argument("--only", choices=sorted(CONTENDERS), help="this contender alone, such as opencl")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    (_work if given.worker else _supervise)(given)


def _supervise(given: argparse.Namespace) -> None:
    """Workers in turn: one that dies has met a crash, and the next goes on behind that seed."""
    start, seed = time.monotonic(), given.first
    mark = given.folder / f"at-{given.first}"
    while seed < given.last and (left := given.seconds - (time.monotonic() - start)) > 0:
        mark.unlink(missing_ok=True)  # that of an earlier hunt
        command = [sys.executable, "-m", "fuzz.hunt", str(seed), str(given.last), "--worker"]
        command += ["--corners"] * given.corners + ["--damage"] * given.damage
        command += ["--written"] * given.written
        command += ["--only", given.only] if given.only else []
        code = subprocess.run(
            [*command, "--folder", str(given.folder), "--seconds", str(left)],
            env={**os.environ, "FUZZ_MARK": str(mark)},
        ).returncode
        if code == 0:
            break
        if not mark.exists():
            sys.exit(f"the worker ended with {code} before its first seed")
        at, _, who = mark.read_text().partition(" ")
        print(f"seed {at}: {who} ends the process with {code}", flush=True)
        seed = int(at) + 1


def _work(given: argparse.Namespace) -> None:
    seen: Counter[str] = Counter()
    start, nodes, seed = time.monotonic(), 0, given.first
    for seed in range(given.first, given.last):
        if time.monotonic() - start > given.seconds:
            break
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        note(f"{seed} the generator or a damaged model")
        if given.damage:
            wrong = (misfit if given.written else damaged)(random.Random(seed))
            _damage(given.folder, seed, wrong, seen, [given.only] if given.only else ["numpy", "native"])
            continue
        model, runs = program_of(seed, given.corners, given.written)
        nodes += len(model.graph.node)
        watched = {name: _noting(f"{seed} {name}", run) for name, run in CONTENDERS.items()}
        with (
            mock.patch.dict(CONTENDERS, watched),
            mock.patch("fuzz.judge.onnxruntime", _noting(f"{seed} onnxruntime", onnxruntime)),
        ):
            found = judge(model, runs, [given.only] if given.only else contenders_of(seed))
            if found:
                keep(given.folder, seed, model, runs, found, seen)
    print(
        f"seeds {given.first} to {seed}, {nodes} nodes, {time.monotonic() - start:.0f} s: {sum(seen.values())} differences"
    )
    for what, count in seen.most_common():
        print(f"{count:5} {what}")


def _damage(folder: pathlib.Path, seed: int, wrong: Damaged, seen: Counter[str], contenders: list[str]) -> None:
    """A damaged model: what is wrong with an answer is told once for each kind, and the model kept."""
    what, model, runs = wrong
    for contender, kind, words in verdict(model, runs, contenders):
        name = f"{kind}-{'-'.join(n.op_type for n in model.graph.node)[:40]}-{contender}"
        seen[name] += 1
        if seen[name] == 1:
            print(f"seed {seed}: {contender} {kind}: {what}: {words}", flush=True)
            (folder / f"{name}-{seed}.onnx").write_bytes(model.SerializeToString())
            (folder / f"{name}-{seed}.pickle").write_bytes(pickle.dumps(runs))


def note(text: str) -> None:
    """What is about to run, for the process that watches."""
    pathlib.Path(os.environ["FUZZ_MARK"]).write_text(text)


def _noting(text: str, run: Any) -> Any:
    def noted(*given: Any) -> Any:
        note(text)
        return run(*given)

    return noted


def keep(folder: pathlib.Path, seed: int, model: ModelProto, runs: Any, found: Finding, seen: Counter[str]) -> None:
    """Make it small, name it by its operators and write it."""
    contender = found.contender.split()[0]

    def fails(small: ModelProto, feeds: Any) -> bool:
        again = judge(small, feeds, [contender])
        return again is not None and (again.run < 0, again.theirs) == (found.run < 0, found.theirs)

    small, feeds = shrink(model, runs, fails) if fails(model, runs) else (model, runs)
    last = judge(small, feeds, [contender]) or found
    what = "-".join(n.op_type for n in small.graph.node)[:80] + f"@{small.opset_import[0].version}"
    name = f"{what}-{contender}{'-error' if found.run < 0 else ''}{'-theirs' if found.theirs else ''}"
    seen[name] += 1
    if seen[name] <= 3:
        print(f"seed {seed}: {'THEIRS ' * found.theirs}{what}: {last}", flush=True)
        path = folder / f"{name}-{seed}"
        path.with_suffix(".onnx").write_bytes(small.SerializeToString())
        path.with_suffix(".pickle").write_bytes(pickle.dumps(list(feeds)))


def load(path: str) -> tuple[ModelProto, list[Feeds]]:
    """What ``keep`` wrote."""
    import onnx

    return onnx.load(path), pickle.loads(pathlib.Path(path).with_suffix(".pickle").read_bytes())


if __name__ == "__main__":
    main()
