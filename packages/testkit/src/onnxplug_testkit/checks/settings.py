"""L0 and L4: what options are given, and what becomes of them."""

from __future__ import annotations

import dataclasses
import threading
import types
import typing
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from onnxplug.contract import dump_options, parse_options
from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.graph import compare_runs
from onnxplug_testkit.checks.patterns import behind, products
from onnxplug_testkit.checks.robust import PATIENCE, together
from onnxplug_testkit.models import dag, expected, open_session
from onnxplug_testkit.subject import Subject

ILLEGAL = "no such value"
RUNS = 10
RTOL, ATOL = 2e-2, 2e-2
"""As far apart as results may be of modes that trade precision."""
REFUSALS = (RuntimeError, ValueError, *STATUS_ERRORS)


@check("contract.options_are_read")
def options_are_read(subject: Subject, seed: int) -> None:
    """Options are read as their types say, refused by name if they cannot be, and shown by ``get_provider_options()`` as given."""
    cls = subject.spec.options
    hints = typing.get_type_hints(cls)
    defaults = dump_options(parse_options(cls, {}))
    for field in dataclasses.fields(cls):
        name, kind = field.name, hints[field.name]
        for text in {defaults[name], *legal(field, kind)}:
            try:
                value = getattr(parse_options(cls, {name: text}), name)
            except RuntimeError as error:  # a number may have bounds
                assert text != defaults[name] and {int, float} & set(_kinds(kind)) and name in str(error), (
                    f"option {name} = {text!r}, of type {kind}: {error}"
                )
                continue
            assert _is_of(value, kind), f"option {name} is of type {kind}, {text!r} is read as {value!r}"
            shown = dump_options(parse_options(cls, {name: text}))
            wanted = defaults | {name: text}
            assert shown[name] == text, f"option {name} given as {text!r} is shown as {shown[name]!r}"
            assert is_address(field) or shown == wanted, f"option {name} = {text!r} changes other options: {shown}"
        for text in illegal(field, kind):
            try:
                with subject.instance(**{name: text}):
                    pass
            except REFUSALS as error:
                assert name in str(error), f"option {name} is refused without its name: {error}"
            else:
                raise AssertionError(f"option {name}, of type {kind}, takes {text!r}")
    with open_session(subject, products(subject, np.random.default_rng(seed))[0], *behind(subject)) as session:
        shown = session.get_provider_options()[subject.name]
    assert shown == {**defaults, **subject.options}, f"get_provider_options() shows {shown}"


@check("robust.options_are_apart")
def options_are_apart(subject: Subject, seed: int) -> None:
    """Sessions with different options run at once in threads, and one after the other, each with its own; all give right results."""
    rng = np.random.default_rng(seed)
    made = products(subject, rng)[-1]
    x = rng.uniform(-1, 1, (9, 16)).astype(np.float32)
    (want, *_) = expected(made, {"x": x}, subject.name)
    cls = subject.spec.options
    hints = typing.get_type_hints(cls)
    given = [
        {field.name: text}
        for field in dataclasses.fields(cls)
        if hints[field.name] is bool or field.metadata.get("choices")
        for text in legal(field, hints[field.name])
        if text != subject.options.get(field.name)
    ]
    if not given:
        raise Unsupported("options")

    def work(start: threading.Barrier, session: Any, options: dict[str, str]) -> None:
        start.wait(PATIENCE)
        for _ in range(RUNS):
            got = session.run(None, {"x": x})[0]
            assert np.allclose(got, want, RTOL, ATOL), f"with {options or 'no options'} beside others a result is wrong"

    for options in given:
        with open_session(subject, made, *behind(subject)) as plain:
            try:
                other = open_session(subject, made, *behind(subject), options=options)
            except REFUSALS as error:
                (name,) = options
                assert name in str(error), f"option {options} is refused without its name: {error}"
                continue
            with other:
                for _ in range(2):  # and the first one, which was made before the other
                    start = threading.Barrier(2)
                    together([partial(work, start, plain, {}), partial(work, start, other, options)])
                shown = [session.get_provider_options()[subject.name] for session in (plain, other)]
        assert shown[1] == shown[0] | options, f"a session given {options} beside {shown[0]} shows {shown[1]}"
        _made_later(subject, rng, options)


def _made_later(subject: Subject, rng: np.random.Generator, options: dict[str, str]) -> None:
    """A graph that no session had before is compiled for one with ``options`` first: one without does not get what was made for that."""
    made = dag(subject, rng)
    feeds = {name: rng.standard_normal((3, 16)).astype(np.float32) for name in ("x", "z")}
    with open_session(subject, made, *behind(subject), options=options) as other:
        other.run(None, feeds)
    with open_session(subject, made, *behind(subject)) as plain:
        try:
            compare_runs(plain, made, rng, subject)
        except AssertionError as error:
            raise AssertionError(f"a session without options, made after one with {options}: {error}") from error


def legal(field: dataclasses.Field[Any], kind: Any) -> list[str]:
    """Values that the option's declaration allows besides its default, as text."""
    default: Any = field.default
    if choices := field.metadata.get("choices") or _literal(kind):
        return [str(choice) for choice in choices if choice != default]
    if kind is bool:
        return [str(int(not default))]
    if int in _kinds(kind) and not is_address(field):
        return [str((default or 0) + number) for number in (1, 12345678901)]
    if float in _kinds(kind):
        return [str((default or 0) + 0.5)]
    return []


def illegal(field: dataclasses.Field[Any], kind: Any) -> Iterator[str]:
    """Values that it does not allow."""
    least = field.metadata.get("least")
    if field.metadata.get("choices") or _literal(kind) or {bool, int, float} & set(_kinds(kind)):
        yield ILLEGAL
    if int in _kinds(kind):
        yield "1.5"
    if least is not None:
        yield str(least - 1)


def is_address(field: dataclasses.Field[Any]) -> bool:
    """Whether a number stands for something of the process, of which none may be made up."""
    return "address" in field.metadata.get("doc", "")


def _kinds(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)


def _literal(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value has the declared type."""
    if words := _literal(kind):
        return value in words
    return type(value) in [type(None) if one is None else typing.get_origin(one) or one for one in _kinds(kind)]
