"""The page of docs/reference that lists every check of the kit and the mutants it kills."""

from __future__ import annotations

from onnxplug_testkit.check import checks
from onnxplug_testkit.kernels.claim import CLAIM_CHECKS
from onnxplug_testkit.kernels.trial import ASPECTS
from onnxplug_testkit.levels import LEVELS
from onnxplug_testkit.mutants import check_names, mutants

_HEAD = """<!-- Written by `onnxplug-testkit mutants --page`; do not edit. -->

# The conformance kit: checks and mutants

A mutant is `ReferenceExecutionProvider` with one behaviour broken. The kit's own tests run each against the check that is to notice, and
the unchanged reference against all of them: every mutant is killed by the check named here, and no check is without a kill.
"""


def rules() -> dict[str, str]:
    """The rule behind every name under which the kit fails a provider."""
    return {**{c.name: c.text for c in checks().values()}, **ASPECTS, **CLAIM_CHECKS}


def conformance_page() -> str:
    """The page."""
    killers: dict[str, list[str]] = {}
    for mutant in mutants().values():
        killers.setdefault(mutant.killed_by, []).append(f"`{mutant.name}`")
    texts = rules()
    lines = [_HEAD, "## Checks\n", f"{len(check_names())} checks. Each level includes those before it.\n"]
    lines += ["| check | rule | kills |", "|---|---|---|"]
    for name in sorted(check_names(), key=lambda name: (LEVELS.index(name.partition(".")[0]), name)):
        lines.append(f"| `{name}` | {_cell(texts[name])} | {', '.join(killers[name])} |")
    lines += [
        "\n## Mutants\n",
        f"{len(mutants())} mutants.\n",
        "| mutant | what it does | killed by |",
        "|---|---|---|",
    ]
    lines += [f"| `{m.name}` | {_cell(m.text)} | `{m.killed_by}` |" for m in mutants().values()]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("``", "`").split())
