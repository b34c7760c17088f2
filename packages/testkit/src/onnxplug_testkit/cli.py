"""``onnxplug-testkit``: re-check a report, compare two, render one, and try the kit itself on its mutants."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from onnxplug_testkit import __version__, report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="onnxplug-testkit", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    verify = commands.add_parser("verify", help="say whether a report agrees with itself and with what is installed")
    verify.add_argument("report", type=Path)
    verify.add_argument(
        "--allow-other-installation", action="store_true", help="do not compare the distribution installed here"
    )
    verify.add_argument(
        "--again",
        type=_count,
        default=0,
        metavar="N",
        help="run N of its tests, chosen at random, on the provider installed here",
    )
    diff = commands.add_parser("diff", help="list what changed from one report to another")
    diff.add_argument("old", type=Path)
    diff.add_argument("new", type=Path)
    render = commands.add_parser(
        "render", help="write a report as a page: Markdown (.md), HTML (.html), JUnit (.xml), or a badge (.svg)"
    )
    render.add_argument("report", type=Path)
    render.add_argument("output", type=Path)
    trial = commands.add_parser(
        "mutants", help="run the kit on deliberately broken providers; a Markdown table of what kills them"
    )
    trial.add_argument("names", nargs="*", help="mutants (default: all)")
    trial.add_argument("--page", action="store_true", help="run nothing; print the page that lists checks and mutants")
    trial.add_argument(
        "--systematic",
        action="store_true",
        help="mutants of each operator instead (names: operators), which ignore one attribute, one value of it or one operand",
    )
    given = parser.parse_args(arguments)
    try:
        return {"verify": _verify, "diff": _diff, "render": _render, "mutants": _mutants}[given.command](given)
    except (report.ReportError, ValueError) as error:
        print(f"onnxplug-testkit: {error}", file=sys.stderr)
        return 2


def _count(text: str) -> int:
    """A number of tests. ValueError or ArgumentTypeError for what is none, which argparse tells."""
    if (count := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"{count} is no number of tests")
    return count


def _verify(given: argparse.Namespace) -> int:
    data = report.read(given.report)
    try:
        found = [p for p in report.problems(data) if not (given.allow_other_installation and "installed here" in p)]
    except (AttributeError, KeyError, TypeError) as error:
        raise report.ReportError(f"{given.report} is damaged: {type(error).__name__}: {error}") from error
    if given.again:
        from onnxplug_testkit.again import again

        found += again(data, given.again)
    for problem in found:
        print(problem)
    if not found:
        print(f"{data['provider']['name']}: {data['verdict']} at level {data['level']}, consistent")
    return 1 if found else 0


def _diff(given: argparse.Namespace) -> int:
    lines = list(report.differences(report.read(given.old), report.read(given.new)))
    print("\n".join(lines) if lines else "no differences")
    return 1 if lines else 0


def _render(given: argparse.Namespace) -> int:
    from onnxplug_testkit.render import save

    save(report.read(given.report), given.output)
    return 0


def _mutants(given: argparse.Namespace) -> int:
    from onnxplug_testkit.mutants import judge, mutants
    from onnxplug_testkit.mutants.page import conformance_page

    if given.page:
        print(conformance_page(), end="")
        return 0
    if given.systematic:
        return _systematic(given.names)
    known = mutants()
    unknown = sorted(set(given.names) - set(known))
    if unknown:
        raise ValueError(f"{unknown[0]} is no mutant")
    survivors = 0
    print("| mutant | what it does | killed by |\n|---|---|---|")
    for mutant in known.values():
        if given.names and mutant.name not in given.names:
            continue
        with mutant.subject() as subject:
            killer = judge(subject, mutant.killed_by, mutant.operators)
        survivors += killer != mutant.killed_by
        print(
            f"| `{mutant.name}` | {mutant.text} | `{killer}` |"
            if killer
            else f"| `{mutant.name}` | {mutant.text} | **survives** |"
        )
    return 1 if survivors else 0


def _systematic(names: Sequence[str]) -> int:
    from onnxplug_testkit.mutants.systematic import operators, survivors

    unknown = sorted(set(names) - set(operators()))
    if unknown:
        raise ValueError(f"the kit has no structure of an operator {unknown[0]}")
    total = surviving = 0
    print("| operator | mutants | what those ignore that survive |\n|---|---|---|")
    for operator in names or operators():
        count, alive = survivors(operator)
        total, surviving = total + count, surviving + len(alive)
        print(f"| {operator} | {count} | {'; '.join(alive)} |", flush=True)
    print(f"\n{total - surviving} of {total} are noticed.")
    return 1 if surviving else 0


if __name__ == "__main__":
    sys.exit(main())
