"""The command line's grammar, importing nothing that commands need: ``--help`` and ``--version`` answer at once."""

from __future__ import annotations

import argparse
from typing import NoReturn

from onnxplug import __version__
from onnxplug.cli.failure import USAGE, CliError

_EXIT_CODES = """\
exit codes:
  0    ok
  1    the model or the run failed; doctor: something is broken
  2    usage: a wrong argument, or an input file that cannot be read
  3    a provider named in --providers cannot be used
  130  interrupted"""


class _Parser(argparse.ArgumentParser):
    """Raises CliError where argparse would print and exit."""

    def error(self, message: str) -> NoReturn:
        raise CliError(USAGE, "UsageError", message, f"{self.prog} --help")


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands; the namespace it gives has ``command``, ``json`` and ``traceback`` for each."""
    parser = _Parser(
        prog="onnxplug",
        description="Run ONNX models on execution providers, and see which provider runs what and why.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"onnxplug {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        sub: argparse.ArgumentParser = commands.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=_EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        sub.add_argument("--json", action="store_true", help="print JSON and nothing else; errors too")
        sub.add_argument("--traceback", action="store_true", help="print the traceback of an error to stderr")
        return sub

    command("providers", "list the providers: state, origin, devices, options")
    command("doctor", "check every plugin and say how to mend what is broken")
    _add_explain(command("explain", "show which provider runs each node of a model, and why no other does"))
    _add_run(command("run", "run a model and show its outputs and its time"))
    _add_new(command("new", "write the package of an execution provider of one's own"))
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument(
        "--providers",
        type=_names,
        metavar="A,B",
        help="providers in order of priority, in short (cpu) or in full; default: all that can be used here",
    )
    parser.add_argument(
        "--option",
        dest="options",
        action="append",
        default=[],
        type=_option,
        metavar="PROVIDER.KEY=VALUE",
        help="an option of a provider ('onnxplug providers' lists them); may be repeated",
    )


def _add_explain(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("--all", action="store_true", help="list every node instead of groups of alike ones")
    parser.add_argument("--html", metavar="FILE.html", help="write a picture of it, a page for a browser")


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument(
        "--inputs",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE.npz|NAME=FILE.npy",
        help="inputs; those not given are generated from the model's signature",
    )
    parser.add_argument(
        "--dim",
        dest="dims",
        action="append",
        default=[],
        type=_dimension,
        metavar="NAME=SIZE",
        help="size of a symbolic dimension of generated inputs (INPUT.AXIS for one without a name); default: 1",
    )
    parser.add_argument(
        "--seed", type=_at_least(0), metavar="N", help="seed of generated inputs (default 0) and random operators"
    )
    parser.add_argument("--repeat", type=_at_least(1), default=1, metavar="N", help="timed runs (default 1)")
    parser.add_argument("--warmup", type=_at_least(0), default=0, metavar="N", help="runs before those (default 0)")
    parser.add_argument("--output", metavar="FILE.npz", help="write the outputs of the last run")
    parser.add_argument("--profile", action="store_true", help="time each operator; writes a trace file for Perfetto")


def _add_new(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="short name: lower-case letters, digits, hyphens (acme, my-npu)")
    parser.add_argument(
        "--dir", metavar="FOLDER", help="where to write it; default: onnxplug-ep-NAME in the working directory"
    )


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"'{text}' is not a comma-separated list of providers")
    return names


def _option(text: str) -> tuple[str, str, str]:
    target, equals, value = text.partition("=")
    provider, dot, key = target.partition(".")
    if not (equals and dot and provider and key):
        raise argparse.ArgumentTypeError(f"'{text}' does not read PROVIDER.KEY=VALUE")
    return provider, key, value


def _dimension(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name or not size.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' does not read NAME=SIZE")
    return name, int(size)


class _at_least:
    """Whole numbers from ``least`` on."""

    def __init__(self, least: int) -> None:
        self._least = least

    def __call__(self, text: str) -> int:
        if not text.isdecimal() or int(text) < self._least:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {self._least} on")
        return int(text)
