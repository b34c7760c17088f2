"""One run of the kit: subject, level, seed, waivers, the plan, and the ledger its tests write to."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from onnxplug.contract import Unavailable
from onnxplug_testkit.check import Check, CheckFailed, Unsupported, checks
from onnxplug_testkit.checks import surroundings
from onnxplug_testkit.kernels import claim
from onnxplug_testkit.kernels.generated import Generated
from onnxplug_testkit.kernels.plan import Group, Plan, claimed_cells, plan
from onnxplug_testkit.kernels.trial import Outcome, Trial
from onnxplug_testkit.ledger import Ledger, TestEntry
from onnxplug_testkit.levels import up_to
from onnxplug_testkit.models import SILENT
from onnxplug_testkit.profiles import Profile
from onnxplug_testkit.subject import Subject
from onnxplug_testkit.waivers import WAIVED, Waiver


@dataclass
class Kit:
    """What the tests of one run share. ``settle`` gives one test's verdict, ``finish`` what only the whole run shows."""

    subject: Subject
    level: str = "kernels"
    seed: int = 0
    profile: Profile | None = None
    waivers: Mapping[str, Waiver] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    today: datetime.date = field(default_factory=datetime.date.today)

    def __post_init__(self) -> None:
        answer = self.subject.spec.check()
        if isinstance(answer, Unavailable):
            self.ledger.not_run = f"{answer.reason}{f' (to fix: {answer.fix})' if answer.fix else ''}"

    @property
    def with_kernels(self) -> bool:
        """Whether the level looks at the registry."""
        return "kernels" in up_to(self.level)

    @cached_property
    def plan(self) -> Plan:
        """The trials of the registry."""
        made = plan(self.subject) if self.with_kernels else Plan()
        self.ledger.claim(made.cells)
        self.ledger.unreached(made.unreached)
        return made

    def checks(self) -> list[Check]:
        """The checks of the level."""
        levels = up_to(self.level)
        return [c for c in checks().values() if c.level in levels]

    def claim_checks(self) -> list[str]:
        """The checks on the claim as a whole."""
        names = list(claim.CLAIM_CHECKS) if self.with_kernels else []
        return names if self.profile is not None else [n for n in names if n != "kernels.profile"]

    def names(self) -> list[str]:
        """Every test of the level by name."""
        trials = [trial_test(t) for t in self.plan.trials]
        generated = [generated_test(g) for g in self.plan.generated]
        groups = [g.id for g in self.plan.groups]
        return [*(c.name for c in self.checks()), *trials, *generated, *groups, *self.claim_checks()]

    def try_out(self, trial: Trial) -> None:
        """Run a trial and enter what it proves. CheckFailed, or Unsupported when it was declined or cannot be judged."""
        cells = trial.target.cells
        try:
            outcome = self._tried(trial)
            if outcome.status == "declined" and (not outcome.text.strip() or outcome.text == SILENT):
                raise CheckFailed(
                    "kernels.declines_say_why",
                    "the registry has a kernel for it, get_capability leaves it without a reason",
                )
        except Exception as error:
            if self._expects(trial_test(trial)):
                self.ledger.waive(cells, trial_test(trial))
            else:
                self.ledger.broken(
                    cells, f"{type(error).__name__}: {error}" if not isinstance(error, CheckFailed) else str(error)
                )
            raise
        if outcome.status == "passed":
            self.ledger.proved(cells, outcome.oracle, outcome.ulp)
            return
        what = "declined" if outcome.status == "declined" else "unjudged"
        self.ledger.unreached(dict.fromkeys(cells, f"{what}: {outcome.text}"))
        raise Unsupported("claimed" if what == "declined" else "oracle", outcome.text)

    def _tried(self, trial: Trial) -> Outcome:
        """What the trial finds. A failure tells the node too, of which the trial's name says little."""
        try:
            return trial.run(self.subject, self.seed)
        except CheckFailed as error:
            raise CheckFailed(error.check, f"{error.text}; the node: {trial.target!r}") from error

    def try_generated(self, generated: Generated) -> None:
        """Run a test over drawn structures and enter what it proves."""
        try:
            found = generated.run(self.subject, self.seed)
        except Exception as error:
            if not self._expects(generated_test(generated)):
                self.ledger.broken(generated.claimed.cells[:1], str(error))
            raise
        for cells, outcome in found:
            if outcome.status == "passed":
                self.ledger.proved(cells, outcome.oracle, outcome.ulp)
        if not found:
            raise Unsupported("claimed", "no drawn structure is legal in this version and claimed")

    def try_group(self, group: Group) -> None:
        """Run a test of many sizes or several nodes. CheckFailed, or Unsupported when it was declined or cannot be judged."""
        outcome = group.run(self.subject, self.seed)
        if outcome.status != "passed":
            raise Unsupported("claimed" if outcome.status == "declined" else "oracle", outcome.text)

    def judge_claim(self, name: str) -> None:
        """Run one of ``claim_checks``."""
        if name == "kernels.claims_something":
            claim.claims_something(self.ledger)
        elif name == "kernels.every_cell_is_proven":
            claim.every_cell_is_proven(self.ledger, self.waivers)
        elif name == "kernels.claim_is_steady":
            claim.claim_is_steady(self.plan.cells, claimed_cells(self.subject, self.plan.only))
        elif self.profile is not None:
            claim.keeps_profile(self.ledger, self.profile)

    def _expects(self, name: str) -> bool:
        """Whether a waiver that holds says that the test fails."""
        waiver = self.waivers.get(name)
        return waiver is not None and waiver.found == "failed" and waiver.refusal(self.today) is None

    def settle(self, name: str, error: BaseException | None, seconds: float = 0) -> TestEntry:
        """Enter the verdict on one test, its waiver considered."""
        entry = TestEntry(name, *_found(error), seconds)
        waiver = self.waivers.get(name)
        if waiver is not None and entry.status != waiver.found:
            entry.status, entry.detail = "failed", waiver.misfit(entry.status, entry.detail)
        elif waiver is not None and waiver.refusal(self.today) is None:
            entry.status, entry.detail = WAIVED[waiver.kind], f"{waiver.reason} ({waiver.link})"
        self.ledger.tests[name] = entry
        return entry

    def finish(self) -> None:
        """Enter what only the whole run shows: tests not run, cells without a trial, waivers that match nothing or are out of date."""
        if self.ledger.not_run:
            return
        if replaced := surroundings.replacements():
            entered = self.ledger.tests.get(surroundings.CODE)
            text = f"replaced during the run: {', '.join(replaced[:5])}"
            self.settle(surroundings.CODE, AssertionError(text), entered.seconds if entered is not None else 0)
        self.ledger.deselected = len(set(self.names()) - set(self.ledger.tests))
        known = set(self.names())
        for cell, entry in self.ledger.cells.items():
            name = claim.cell_test(cell)
            waiver = self.waivers.get(name)
            if waiver is not None and entry.status == "unproven":
                known.add(name)
                entry.waived.append(name)
                self.ledger.tests[name] = TestEntry(name, "waived", waiver.reason)
        refusals = [w.refusal(self.today) for w in self.waivers.values()]
        self.ledger.unused_waivers = [r for r in refusals if r is not None]
        if not self.ledger.deselected:
            self.ledger.unused_waivers += [f"the waiver of {n} matches no test" for n in self.waivers if n not in known]


def _found(error: BaseException | None) -> tuple[str, str]:
    """Status and detail of a test that ended so, waivers apart."""
    if error is None:
        return "passed", ""
    if isinstance(error, Unsupported):
        return "unsupported", str(error)
    return "failed", str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"


def trial_test(trial: Trial) -> str:
    """The name of a trial as a test."""
    return f"kernels.trial[{trial.id}]"


def generated_test(generated: Generated) -> str:
    """The name of a test over drawn structures."""
    return f"kernels.generated[{generated.id}]"
