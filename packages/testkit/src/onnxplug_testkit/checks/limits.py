"""L1: whether the option that bounds a provider's memory bounds it, at the very byte."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from onnxplug.contract import Arena, ArenaConfig, RuntimeException
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.settings import REFUSALS
from onnxplug_testkit.space import space_of
from onnxplug_testkit.subject import Subject

LIMIT = 1 << 20
LIMITS = (1 << 12, LIMIT, 5 << 18)
"""Of which one is no number of megabytes."""


@check("memory.limit_is_reached")
def limit_is_reached(subject: Subject, seed: int) -> None:
    """With its memory option at N bytes, exactly N can be had, and again when they were given back."""
    for limit in _limits(subject):
        for strategy in ("kNextPowerOfTwo", "kSameAsRequested"):
            with _limited(subject, limit, strategy) as arena:
                try:
                    for _ in range(2):
                        arena.free(arena.allocate(limit))
                        arena.shrink()
                except RuntimeException as error:
                    raise AssertionError(
                        f"{strategy}: {limit} bytes are refused under a limit of {limit}: {error.text}"
                    ) from error


@check("memory.limit_is_kept")
def limit_is_kept(subject: Subject, seed: int) -> None:
    """With its memory option at N bytes, N+1 are refused, at once and in two parts, also when N were given back before."""
    for limit in _limits(subject):
        for parts in ((limit + 1,), (limit // 2, limit // 2 + 1)):
            with _limited(subject, limit, "kSameAsRequested") as arena:
                arena.free(arena.allocate(limit // 2))
                arena.shrink()
                try:
                    held = [arena.allocate(nbytes) for nbytes in parts]
                except RuntimeException:
                    continue
                for buffer in held:
                    arena.free(buffer)
            raise AssertionError(f"{' and '.join(map(str, parts))} bytes are given under a limit of {limit}")


@check("memory.limit_of_nothing")
def limit_of_nothing(subject: Subject, seed: int) -> None:
    """With its memory option at 0 not one byte can be had, unless 0 is refused by the option's name."""
    try:
        with _limited(subject, 0, "kSameAsRequested") as arena:
            try:
                arena.free(arena.allocate(1))
            except RuntimeException:
                return
    except REFUSALS as error:
        assert str(subject.limit()) in str(error), f"a limit of 0 is refused without the option's name: {error}"
        return
    raise AssertionError(f"{subject.limit()} = 0 is taken for no limit: a byte is given")


def _limits(subject: Subject) -> Iterator[int]:
    """Values of the option that bounds the memory, so far as it takes them."""
    fields = {field.name: field for field in dataclasses.fields(subject.spec.options)}
    option = subject.limit()
    least = fields[option].metadata.get("least") if option is not None else None
    yield from (limit for limit in LIMITS if least is None or limit >= least)


@contextmanager
def _limited(subject: Subject, limit: int, strategy: str) -> Iterator[Arena]:
    """The core's arena over an instance whose memory option is set."""
    option = subject.limit()
    if option is None:
        raise Unsupported("memory_limit")
    with space_of(subject, **{option: str(limit)}) as space:
        given = space.allocator.arena
        arena = Arena(space.allocator, ArenaConfig(given.limit, strategy))  # type: ignore[arg-type]
        try:
            yield arena
        finally:
            arena.close()
