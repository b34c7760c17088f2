"""L1 and L4: whether options have the effect that a kit can know of: that the provider reads them at all, and what the core's words mean.

What a mode changes is the provider's own business; that results are right in each is ``robust.options_are_apart``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import typing
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import onnxplug
from onnxplug.contract import KernelRegistry, SessionContext
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.patterns import behind, products
from onnxplug_testkit.checks.settings import is_address, legal
from onnxplug_testkit.models import open_session
from onnxplug_testkit.space import space_of
from onnxplug_testkit.subject import Subject

STRATEGY = "arena_extend_strategy"
"""The option that has one meaning for all providers with memory of their own: how the core's arena over it grows."""
TRIALS = 3
"""Structures of each operator that are run in search of somebody who reads an option."""


@check("memory.arena_grows_as_asked")
def arena_grows_as_asked(subject: Subject, seed: int) -> None:
    """Option ``arena_extend_strategy`` is the strategy of the arena that the allocator wants."""
    fields = {f.name: f for f in dataclasses.fields(subject.spec.options)}
    if STRATEGY not in fields:
        raise Unsupported("options", f"there is no {STRATEGY}")
    kind = typing.get_type_hints(subject.spec.options)[STRATEGY]
    for text in (str(fields[STRATEGY].default), *legal(fields[STRATEGY], kind)):
        with space_of(subject, **{STRATEGY: text}) as space:
            found = space.allocator.arena.strategy
        assert found == text, f"with option {STRATEGY} = {text!r} the arena grows by {found!r}"


@check("robust.options_are_asked_for")
def options_are_asked_for(subject: Subject, seed: int) -> None:
    """Each option but those marked ``idle`` is read while sessions are made, run and profiled, with other options and of all operators."""
    names = [
        f.name
        for f in dataclasses.fields(subject.spec.options)
        if not f.metadata.get("idle") and not is_address(f)  # a stream or an allocator of one's own cannot be made up
    ]
    if not names:
        raise Unsupported("options")
    read: set[str] = set()
    with subject.created_by(lambda options, context: _create(subject, options, context, read)):
        for work in _works(subject, np.random.default_rng(seed)):
            with contextlib.suppress(Exception):  # what is wrong with a session is for other checks to say
                work()
            if read.issuperset(names):
                return
    unread = [name for name in names if name not in read]
    raise AssertionError(
        f"option {', '.join(unread)} is never read: it has no effect. If it is accepted for the sake of programs that give it, declare it "
        "with option(..., idle=True)"
    )


def _create(subject: Subject, options: Any, context: SessionContext, read: set[str]) -> Any:
    """A provider whose options note in ``read`` which of them are looked at."""
    cls: Any = type(options)
    names = {f.name for f in dataclasses.fields(cls)}

    def look(self: Any, name: str) -> Any:
        if name in names:
            read.add(name)
        return cls if name == "__class__" else cls.__getattribute__(self, name)

    watched = type(cls.__name__, (cls,), {"__slots__": (), "__getattribute__": look})
    copied: Any = object.__new__(watched)
    for name in names:
        object.__setattr__(copied, name, getattr(options, name))
    return subject.spec.create(copied, context)


def _works(subject: Subject, rng: np.random.Generator) -> Iterator[Callable[[], object]]:
    """What may make a provider look at its options, the quick first."""
    made = products(subject, rng)
    for each in made:
        yield partial(_run, subject, each, rng)
    with tempfile.TemporaryDirectory() as folder:

        def profiled(settings: onnxplug.SessionOptions) -> None:
            settings.enable_profiling = True
            settings.profile_file_prefix = str(Path(folder, "profile"))

        yield partial(_run, subject, made[-1], rng, configure=profiled)
    hints = typing.get_type_hints(subject.spec.options)
    for field in dataclasses.fields(subject.spec.options):
        for text in legal(field, hints[field.name]):
            yield partial(_run, subject, made[-1], rng, options={field.name: text})
    yield from (partial(_try, subject, operator) for operator in _operators(subject))


def _run(subject: Subject, made: onnx.ModelProto, rng: np.random.Generator, **given: Any) -> None:
    with open_session(subject, made, *behind(subject), **given) as session:
        for rows in (5, 1):
            session.run(None, {"x": rng.uniform(-1, 1, (rows, 16)).astype(np.float32)})


def _operators(subject: Subject) -> list[str]:
    with subject.instance() as instance:
        return sorted({d.op_type for d in instance.call("get_kernel_registry") or KernelRegistry()})


def _try(subject: Subject, operator: str) -> None:
    from onnxplug_testkit.kernels.plan import plan

    for trial in plan(subject, {operator}).trials[:TRIALS]:
        with contextlib.suppress(Exception):
            trial.run(subject, 0)
