"""Deliberately broken providers: each is the reference with one behaviour changed, and names the check that must notice.

``judge`` runs that check. The kit's own tests hold that every mutant is killed by its named check, that every check kills a
mutant, and that the unchanged reference survives them all. A kill is a failure that a check states: a mutant in whose own code a name is
missing, or whose hooks are called with other arguments than they take, is ``Broken``.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from onnxplug.plugins import InvalidProvider
from onnxplug_testkit.check import CheckFailed, Unsupported, checks
from onnxplug_testkit.checks import surroundings
from onnxplug_testkit.kernels.claim import CLAIM_CHECKS
from onnxplug_testkit.kernels.trial import aspects
from onnxplug_testkit.kit import Kit
from onnxplug_testkit.profiles import load
from onnxplug_testkit.subject import Subject

_MODULES = (
    "announcing", "blocks", "copying", "computing", "edges", "corners", "pairs", "forms", "claiming", "compiling", "placing", "misbehaving",
    "failing", "holding", "intruding", "moody", "deaf", "writing", "lasting", "unsettling", "lending", "tripping", "recording",
    "seldom",
)  # fmt: skip

_ARGUMENTS = re.compile("(positional|keyword|keyword-only) arguments?")


class Broken(Exception):
    """A mutant fails for another reason than the one it is made for."""


@dataclass(frozen=True)
class Mutant:
    """``text``: what it does wrong. ``killed_by``: the check that notices. ``operators``: those to try, for a check of kernels."""

    name: str
    text: str
    killed_by: str
    subject: Callable[[], AbstractContextManager[Subject]]
    module: str
    operators: tuple[str, ...] = ()


_mutants: dict[str, Mutant] = {}


def mutant(
    killed_by: str, *operators: str
) -> Callable[
    [Callable[[], Subject | AbstractContextManager[Subject]]], Callable[[], Subject | AbstractContextManager[Subject]]
]:
    """Enter a function that makes a mutated subject; its name is the mutant's, its docstring what is wrong."""

    def enter(
        make: Callable[[], Subject | AbstractContextManager[Subject]],
    ) -> Callable[[], Subject | AbstractContextManager[Subject]]:
        @contextlib.contextmanager
        def opened() -> Iterator[Subject]:
            surroundings.remember()  # as the kit does at its start
            made = make()
            if isinstance(made, Subject):
                made.announce()
                yield made
            else:
                with made as subject:
                    yield subject

        text = " ".join((make.__doc__ or "").split())
        name = make.__name__.strip("_")
        _mutants[name] = Mutant(name, text, killed_by, opened, make.__module__, operators)
        return make

    return enter


def mutants() -> dict[str, Mutant]:
    """All mutants by name."""
    names = [f"onnxplug_testkit.mutants.{module}" for module in _MODULES]
    for name in names:
        importlib.import_module(name)
    return dict(sorted(_mutants.items(), key=lambda item: names.index(item[1].module)))  # whichever was imported first


def check_names() -> set[str]:
    """Every name under which the kit fails a provider."""
    return {*checks(), *aspects(), *CLAIM_CHECKS}


def judge(subject: Subject, check: str, operators: tuple[str, ...] = (), seed: int = 1) -> str | None:
    """The name of the check that fails when ``check`` is run on ``subject``; None when it survives or is spared. ``kernels`` is all that
    is tried of kernels. Broken when it fails for a mistake in the code; exceptions that no check states pass."""
    try:
        if check in checks():
            checks()[check](subject, seed)
        else:
            _judge_kernels(subject, check, operators, seed)
    except CheckFailed as error:
        if (mistake := next(filter(_is_mistake, _reasons(error)), None)) is not None:
            raise Broken(f"{error.check} fails for a mistake in the code it judges: {mistake!r}") from error
        return error.check
    except Unsupported:
        return None
    return None


def _is_mistake(error: BaseException) -> bool:
    """Whether it shows that a function or hook takes other arguments than it is given, or uses a name that is not there."""
    called = isinstance(error, TypeError) and _ARGUMENTS.search(str(error)) is not None
    return called or isinstance(error, (NameError, ImportError, AttributeError, InvalidProvider))


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """An exception and what led to it."""
    yield error
    within = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for reason in (error.__cause__ or error.__context__, *within):
        if reason is not None:
            yield from _reasons(reason)


def _judge_kernels(subject: Subject, check: str, operators: tuple[str, ...], seed: int) -> None:
    from onnxplug_testkit.kernels.plan import plan

    kit = Kit(subject, "kernels", seed, load("elementwise") if check == "kernels.profile" else None)
    kit.plan = made = plan(subject, operators or None)
    kit.ledger.claim(made.cells)
    kit.ledger.unreached(made.unreached)
    for generated in made.generated if check in ("kernels", "kernels.generated") else []:
        with contextlib.suppress(Unsupported):
            kit.try_generated(generated)
    of_groups = check in ("kernels.sizes", "kernels.nodes_are_apart", "kernels.in_company", "kernels.misfits")
    for group in made.groups:
        if group.id.startswith(check):
            with contextlib.suppress(Unsupported):
                kit.try_group(group)
    for trial in made.trials if check != "kernels.generated" and not of_groups else []:
        with contextlib.suppress(Unsupported):
            kit.try_out(trial)
    if check in CLAIM_CHECKS:
        kit.judge_claim(check)
