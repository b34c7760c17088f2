"""``onnxplug run MODEL``: what comes out, how long it takes, who ran it."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxplug.cli.explain import summary
from onnxplug.cli.failure import as_failure
from onnxplug.cli.inputs import Input, make_inputs, read_files
from onnxplug.cli.opening import open_session
from onnxplug.cli.output import COLOURS, Cell, Output, count, duration, number
from onnxplug.cli.outputs import describe, save
from onnxplug.cli.profile import operators
from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.session.environment import set_seed
from onnxplug.session.options import SessionOptions
from onnxplug.session.progress import progress
from onnxplug.session.session import InferenceSession

_SLOWEST = 15


def execute(args: argparse.Namespace, out: Output) -> int:
    """Run the model as often as asked and print the report."""
    given = read_files(args.inputs)  # before the model: a wrong file name is told at once
    if args.seed is not None:
        set_seed(args.seed)
    options = SessionOptions()
    options.enable_profiling = args.profile
    start = time.perf_counter()
    with open_session(args, options) as session:
        created = time.perf_counter() - start
        inputs = make_inputs(session.get_inputs(), given, dict(args.dims), args.seed or 0)
        seconds, results = _timed(session, inputs, args)
        report = _report(session, inputs, results, created, seconds, args)
        if args.output:
            save(args.output, [argument.name for argument in session.get_outputs()], results)
    if out.as_json:
        out.json(report)
    else:
        _show(report, out)
    return 0


def _timed(
    session: InferenceSession, inputs: Sequence[Input], args: argparse.Namespace
) -> tuple[list[float], list[Any]]:
    """Seconds of each timed run, and the last one's outputs."""
    feed = {given.name: given.value for given in inputs}
    seconds = []
    results: list[Any] = []
    try:
        with progress("running", args.warmup + args.repeat, hidden=args.json) as advance:
            for _ in range(args.warmup + args.repeat):
                start = time.perf_counter()
                results = session.run(None, feed)
                seconds.append(time.perf_counter() - start)
                advance()
    except (InvalidArgument, ValueError, RuntimeError) as error:
        hint = _signature(session)
        if "while running" in str(error):
            hint += f"; onnxplug explain {args.model} shows who runs what"
        raise as_failure(error, hint) from error
    except Fail as error:
        hint = f"name another provider for that node; onnxplug explain {args.model} shows who runs what"
        raise as_failure(error, hint) from error
    return seconds[args.warmup :], results


def _signature(session: InferenceSession) -> str:
    inputs = "; ".join(f"{a.name} {a.type} {['?' if d is None else d for d in a.shape]}" for a in session.get_inputs())
    return f"the model takes {inputs or 'no inputs'}".replace("'", "")


def _report(
    session: InferenceSession,
    inputs: Sequence[Input],
    results: Sequence[Any],
    created: float,
    seconds: Sequence[float],
    args: argparse.Namespace,
) -> dict[str, Any]:
    types = {argument.name: argument.type for argument in session.get_inputs()}
    explained = session.explain().to_dict()
    numbers = summary(explained)
    report: dict[str, Any] = {
        "model": args.model,
        "providers": [
            {name: each[name] for name in ("name", "nodes", "shapes")}
            | {share: numbers[share][each["name"]] for share in ("share", "share_but_shapes")}
            for each in explained["providers"]
        ],
        "inputs": [{**describe(i.name, types.get(i.name, ""), i.value), "source": i.source} for i in inputs],
        "outputs": [describe(a.name, a.type, value) for a, value in zip(session.get_outputs(), results, strict=True)],
        "output_file": args.output,
        "runs": len(seconds),
        "warmup": args.warmup,
        "seconds": {"create": created, "median": statistics.median(seconds), "min": min(seconds), "max": max(seconds)},
        "profile": None,
    }
    if args.profile:
        file = str(Path(session.end_profiling()).absolute())
        report["profile"] = {"file": file, "operators": operators(file, args.warmup)}
    return report


def _show(report: dict[str, Any], out: Output) -> None:
    out.line((report["model"], "bold"))
    shapes = sum(provider["shapes"] for provider in report["providers"])
    for index, provider in enumerate(report["providers"]):
        name = (provider["name"], COLOURS[index % len(COLOURS)])
        others = f", {provider['share_but_shapes']:.1%} of those that do more than compute shapes" if shapes else ""
        out.line(name, f": {count(provider['nodes'], 'node')} ({provider['share']:.1%}{others})")
    out.heading("Inputs")
    out.table(["name", "dtype", "shape", "from"], [[i["name"], *_form(i), i["source"]] for i in report["inputs"]])
    out.heading("Outputs")
    told = [each for output in report["outputs"] for each in (output, *output.get("items", ()))]
    rows = [[each["name"], *_form(each), *_statistics(each)] for each in told]
    out.table(["name", "dtype", "shape", "min", "mean", "max", ""], rows, right=[3, 4, 5])
    if report["output_file"]:
        out.line(f"written to {report['output_file']}")
    seconds = report["seconds"]
    out.heading("Time")
    if report["runs"] > 1:
        spread = f", {duration(seconds['min'])} to {duration(seconds['max'])}"
        out.line((duration(seconds["median"]), "bold"), f" per run (median of {report['runs']}{spread})")
    elif report["warmup"]:
        out.line((duration(seconds["median"]), "bold"), " for one run")
    else:
        hint = "(--warmup 1 --repeat 10 for a steady figure)"
        out.line((duration(seconds["median"]), "bold"), f" for the first run {hint}")
    out.line(f"{duration(seconds['create'])} to load and place the model")
    if report["profile"]:
        _show_profile(report["profile"], [p["name"] for p in report["providers"]], out)


def _form(told: dict[str, Any]) -> list[str]:
    """dtype and shape; of what is no tensor its type and length."""
    if "shape" in told:
        return [told["dtype"], "x".join(map(str, told["shape"])) or "scalar"]
    return [told["type"], f"{told['length']} items" if "length" in told else str(told["value"])]


def _statistics(told: dict[str, Any]) -> list[Cell]:
    numbers = [number(told[key]) if told.get(key) is not None else "" for key in ("min", "mean", "max")]
    if told.get("non_finite"):
        return [*numbers, (f"{told['non_finite']} not finite", "red")]
    return [*numbers, ", ".join(map(repr, told.get("sample", ())))]


def _show_profile(profile: dict[str, Any], providers: Sequence[str], out: Output) -> None:
    slowest = profile["operators"]
    colour = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(providers)}
    out.heading(f"Slowest operators ({min(_SLOWEST, len(slowest))} of {len(slowest)}, per run)")
    rows: list[list[Cell]] = []
    for each in slowest[:_SLOWEST]:
        style = colour.get(each["provider"], "dim")
        figures = [number(each["calls"]), duration(each["seconds"]), f"{each['share']:.1%}"]
        rows.append([each["op_type"], (each["provider"], style), *figures, out.length(each["share"], style)])
    out.table(["operator", "provider", "calls", "time", "share", ""], rows, right=[2, 3, 4])
    out.line(f"profile: {profile['file']}")
