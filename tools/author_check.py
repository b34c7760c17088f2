"""Walk the path of a provider's author with built wheels, in an empty environment outside the repository.

::

    python tools/author_check.py DIST [--keep FOLDER]

DIST holds the wheels of all packages and ``constraints.txt``. The author has onnxplug and the kit installed; from ``onnxplug new`` on, five
minutes are given to build the package, install its wheel, pass its own tests and be found conformant to the level ``memory``. Then the kit
judges a provider that was not made by that command, ReferenceExecutionProvider, from its wheel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

MINUTES = 5
NAME = "acme"


class Author:
    """An empty environment, and a folder to work in."""

    def __init__(self, folder: Path, dist: Path) -> None:
        self.folder, self.dist = folder, dist
        venv.create(folder / "venv", with_pip=True)
        self.programs = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
        self.deadline: float | None = None

    def run(self, *command: str | Path, where: Path | None = None) -> None:
        """A command in the environment; CalledProcessError or TimeoutExpired."""
        print("$", *command, flush=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
        environment = {**kept, "PATH": f"{self.programs}{os.pathsep}{kept.get('PATH', '')}"}
        left = None if self.deadline is None else self.deadline - time.monotonic()
        program = self.programs / command[0]
        subprocess.run([program, *command[1:]], cwd=where or self.folder, env=environment, check=True, timeout=left)

    def install(self, *what: str | Path) -> None:
        """Install wheels; a dependency on one of our packages means the wheel in DIST."""
        self.run("python", "-m", "pip", "install", "--quiet", "-c", self.dist / "constraints.txt", *what)

    def judged(self, ep: str, where: Path) -> None:
        """The kit to the level ``memory``. SystemExit unless the report names the installed wheel as conformant."""
        report = where / "conformance.json"
        kit = ("pytest", "-q", "--pyargs", "onnxplug_testkit", "--ep", ep, "--level", "memory")
        self.run(*kit, "--report", report, "--report", report.with_suffix(".html"), where=where)
        self.run("onnxplug-testkit", "verify", report, where=where)
        data = json.loads(report.read_text(encoding="utf-8"))
        if data["verdict"] != "conformant" or not data["distribution"]["record_sha256"]:
            raise SystemExit(f"{ep}: {data['verdict']}, {data['distribution']}")


def walk(folder: Path, dist: Path) -> float:
    """The whole path; seconds from ``onnxplug new`` to the verdict."""
    author = Author(folder, dist)
    author.install("onnxplug", "onnxplug-testkit", "build")
    started = time.monotonic()
    author.deadline = started + 60 * MINUTES
    source = folder / f"onnxplug-ep-{NAME}"
    author.run("onnxplug", "new", NAME)
    author.run("python", "-m", "build", "--wheel", "--outdir", folder / "wheels", source)
    (wheel,) = (folder / "wheels").glob("*.whl")
    author.install(wheel)
    author.run("pytest", "-q", where=source)
    author.judged(NAME, source)
    seconds = time.monotonic() - started
    author.deadline = None
    other = folder / "other"
    other.mkdir()
    author.judged("reference", other)
    return seconds


def main() -> None:
    """SystemExit or CalledProcessError where a step fails."""
    parser = argparse.ArgumentParser(description="Walk the path of a provider's author.")
    parser.add_argument("dist", type=Path)
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it behind")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.keep or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        seconds = walk(folder, given.dist.absolute())
    print(f"author: ok, {seconds:.0f} s from onnxplug new to the verdict (of {60 * MINUTES} given)")


if __name__ == "__main__":
    main()
