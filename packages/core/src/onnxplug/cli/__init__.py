"""The console program ``onnxplug``: ``providers``, ``doctor``, ``explain MODEL``, ``run MODEL``,
``new NAME``.

Each command is a module of this package with ``execute(args, out) -> exit code``, imported when it is called for. Exit
codes: 0 ok, 1 the model or the run failed, or ``doctor`` found something broken, 2 usage, 3 a named provider cannot be
used, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

from onnxplug.cli.arguments import make_parser
from onnxplug.cli.failure import FAILED, USAGE, CliError, as_failure
from onnxplug.cli.output import Output, OutputLost

INTERRUPTED = 130
BROKEN_PIPE = 141
"""What shells report for programs that die of SIGPIPE."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program on ``argv`` (default: the command line's); its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None or sys.stderr is None:  # closed by who called: Python leaves them out
        return _without_streams(given)
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except OSError as error:  # of standard output: everything else was reported
        with contextlib.suppress(OSError, ValueError):  # else the interpreter's own flush at exit fails again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return BROKEN_PIPE
        print(f"onnxplug: cannot write to standard output: {error}", file=sys.stderr)
        return FAILED


def _without_streams(given: Sequence[str]) -> int:
    """Run with standard error to nowhere where it is closed; a closed standard output is one that cannot be written."""
    if sys.stdout is None:
        if sys.stderr is not None:
            print("onnxplug: cannot write to standard output: it is closed", file=sys.stderr)
        return FAILED
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        return main(given)


def _run(given: Sequence[str]) -> int:
    try:
        args, unknown = make_parser().parse_known_args(given)
        if unknown:
            text = f"unrecognized arguments: {' '.join(unknown)}"
            raise CliError(USAGE, "UsageError", text, f"onnxplug {args.command} --help")
    except CliError as error:
        return Output(sys.stdout, "--json" in given).failure(error)
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    out = Output(sys.stdout, args.json)
    try:
        # what a plugin prints must not mix with the JSON
        with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
            command = importlib.import_module(f"onnxplug.cli.{args.command}")
            return int(command.execute(args, out))
    except (BrokenPipeError, OutputLost):
        raise
    except KeyboardInterrupt:
        return out.failure(CliError(INTERRUPTED, "KeyboardInterrupt", "interrupted", ""))
    except Exception as error:
        if args.traceback:
            import traceback

            traceback.print_exc()
        return out.failure(as_failure(error))
