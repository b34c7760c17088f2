"""Running some tests of a report again: what is written in a report can be made up, what a provider does cannot."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onnxplug.plugins import ProviderLookupError
from onnxplug_testkit import profiles
from onnxplug_testkit.check import Unsupported
from onnxplug_testkit.kit import Kit, generated_test, trial_test
from onnxplug_testkit.subject import resolve

_STATUSES = ("passed", "unsupported", "failed")
"""What a test that is run alone can be found to be; the others are matters of waivers."""


def again(data: Mapping[str, Any], count: int, seed: int | None = None) -> Iterator[str]:
    """What differs when ``count`` tests of a report, chosen at random, are run on the provider installed here with the report's seed; and
    tests of the level that it does not list. ``seed`` rules the choice."""
    profile = profiles.load(data["profile"]) if data["profile"] else None
    provider = data["provider"]
    try:
        subject = resolve(provider["name"], provider["options"], provider.get("limit_option", ""))
    except ProviderLookupError as error:
        yield f"it cannot be run again here: {error}"
        return
    kit = Kit(subject, data["level"], data["seed"], profile)
    if kit.ledger.not_run:
        yield f"it cannot be run again here: {kit.ledger.not_run}"
        return
    given = {t["id"]: t["status"] for t in data["tests"]}
    tests = _tests(kit)
    if not data["counts"]["not_selected"] and (missing := sorted(set(tests) - set(given))):
        yield f"{len(missing)} tests of this provider are not listed, {missing[0]} among them"
    known = [name for name, status in given.items() if status in _STATUSES and name in tests]
    for name in random.Random(seed).sample(known, min(count, len(known))):
        try:
            tests[name]()
            found = "passed"
        except Unsupported:
            found = "unsupported"
        except Exception:  # whatever a test ends in is its failure
            found = "failed"
        if found != given[name]:
            yield f"{name} is given as {given[name]}, run again it is {found}"


def _tests(kit: Kit) -> dict[str, Callable[[], object]]:
    """Every test that can be run by itself."""
    found: dict[str, Callable[[], object]] = {}
    for check in kit.checks():
        found[check.name] = functools.partial(check, kit.subject, kit.seed)
    for trial in kit.plan.trials:
        found[trial_test(trial)] = functools.partial(kit.try_out, trial)
    for generated in kit.plan.generated:
        found[generated_test(generated)] = functools.partial(kit.try_generated, generated)
    for group in kit.plan.groups:
        found[group.id] = functools.partial(kit.try_group, group)
    return found
