"""Check the Markdown files: internal links resolve, Python blocks run, console lines that call onnxplug succeed.

The blocks of one file run in order, in a folder of their own that has a small ``model.onnx``: first all Python blocks as one program, then
the console lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import smoke

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def main() -> int:
    """Print every problem; 1 if there is one."""
    problems = [
        f"{page.relative_to(ROOT)}: {text}" for page in pages() for text in (*broken_links(page), *failing_blocks(page))
    ]
    if readme_test_command() not in (ROOT / ".ci" / "run").read_text():
        problems.append(f".ci/run does not run the README's test command: {readme_test_command()}")
    print("\n".join(problems) or "docs: ok")
    return bool(problems)


def pages() -> list[Path]:
    """The Markdown files of the repository."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")])


def broken_links(page: Path) -> Iterator[str]:
    """Relative links without a file, anchors without a heading."""
    for target in _LINK.findall(_FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name) if name else page
        if not path.exists():
            yield f"link to {target}: no such file"
        elif anchor and anchor not in anchors(path):
            yield f"link to {target}: no such heading"


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def failing_blocks(page: Path) -> Iterator[str]:
    """Programs and commands of the page that exit with an error."""
    blocks = _FENCE.findall(page.read_text())
    program = "\n".join(body for language, body in blocks if language == "python")
    commands = [
        line[2:]
        for language, body in blocks
        if language == "console"
        for line in body.splitlines()
        if line.startswith("$ onnxplug ")
    ]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.onnx").write_bytes(smoke.model())
        for command in ([sys.executable, "-c", program] if program else None, *(c.split() for c in commands)):
            if command is None:
                continue
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            if done.returncode:
                shown = "its Python blocks" if command[0] == sys.executable else " ".join(command)
                yield f"{shown}: exit {done.returncode}\n{done.stdout}{done.stderr}"


def readme_test_command() -> str:
    """The command after which the README promises the tests' result."""
    return next(line[2:] for line in (ROOT / "README.md").read_text().splitlines() if line.endswith("nox -s tests"))


if __name__ == "__main__":
    sys.exit(main())
