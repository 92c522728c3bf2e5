"""Phase 2: what is sampled, read and decided after a replication, up to the release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ablation.errors import UsageError
from ablation.plan import measures
from ablation.plan.resources import Resource
from ablation.plan.rules import Rule
from ablation.plan.section import MOST_EFFORTS, Name, PositiveFloat, PositiveInt, Section, Share, Text, did_you_mean, refuse_any
from ablation.plan.tables import STUDY, Table

if TYPE_CHECKING:
    from ablation.plan.model import Plan

Stage = Literal["main", "agent", "safety", "held_out", "never_used"]
Efforts = Annotated[list[Name], Field(min_length=1, max_length=MOST_EFFORTS)]
Problem = tuple[tuple[str | int, ...], str]


class Evaluation(Section):
    """How a finished model and the start are sampled to be compared in phase 2."""

    family: Name | None = None
    """The family whose seeds both are sampled with; left out: the plan's first."""
    same_day_hours: PositiveFloat = 24.0
    """Both models of a comparison are sampled within so many hours, from the first rollout to the last."""
    drift: PositiveInt = 10
    """A start that is sampled again on one set raises the drift flag if its correct rollouts moved by this many or more."""


class BlindedRead(Section):
    """Pairs that both models solved on the same seed, one a problem; `passes` of `pairs` must pass."""

    pairs: PositiveInt
    """Pairs that a judge rates."""
    passes: PositiveInt
    """How many must pass at least."""
    raters: Annotated[int, Field(ge=1, le=10)] = 1
    """How many rate every pair; it passes only if each of them lets it pass."""
    both_orders: bool = False
    """A judge model is asked twice, X and Y the other way round; what it does not say both times is no pass."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """How often a judge model is asked again after a reply that cannot be read."""
    unparsed_limit: Share = 0.1
    """Where more of the replies than this share could never be read, the blinded read is undecided."""

    @model_validator(mode="after")
    def _reachable(self) -> BlindedRead:
        if self.passes > self.pairs:
            refuse_any([(("passes",), f"found {self.passes} of {self.pairs} pairs, which cannot be reached")])
        return self


class HeldOut(Section):
    """Every rule must hold for a win; it is verified only by a passed blinded read."""

    rollouts: PositiveInt
    """Rollouts of each model in the stage."""
    rules: list[Rule]
    """All must hold, against the starting model on the same problems and seeds."""
    blinded_read: BlindedRead
    """What turns a win into a verified one."""
    problems: Resource | None = None
    """The held-out problems, named before training."""
    efforts: Efforts | None = None
    """Efforts at which each problem is sampled; left out: those that have training cells."""
    table: Table = STUDY
    """From rules and the blinded read to the label: `study`, or rows of a decision table."""


class NeverUsed(Section):
    """Every rule must hold for `CONFIRMED`."""

    rollouts: PositiveInt
    """Rollouts of each model in the stage."""
    rules: list[Rule]
    """All must hold, against the starting model on the same problems and seeds."""
    problems: Resource | None = None
    """Problems that nobody ever sampled, trained on or evaluated: refused where the ledger has a mark of one."""
    near_duplicates: Literal["refuse", "allow"] = "refuse"
    """Whether a problem whose text is that of a used one but for its numbers counts as used, too."""
    efforts: Efforts | None = None
    """Efforts at which each problem is sampled; left out: those that have training cells."""
    table: Table = STUDY
    """From rules to the label: `study`, or rows of a decision table."""


class Preference(Section):
    """One step of choosing between checkpoints."""

    measure: Text
    """What is compared."""
    order: Literal["highest", "lowest"]
    """Which of them is preferred."""

    @model_validator(mode="after")
    def _known(self) -> Preference:
        known = [name for name in measures.OF_STAGES if measures.ALL[name].where == "answers"]
        if self.measure not in known:
            text = f"`{self.measure}` is not measured here; known: {', '.join(known)}{did_you_mean(self.measure, known)}"
            refuse_any([(("measure",), text)])
        return self


class Selection(Section):
    """How one of the extension's eligible checkpoints is chosen, on problems frozen in advance."""

    problems: Resource
    """The frozen set."""
    rollouts: PositiveInt
    """Rollouts of each checkpoint, and of the start."""
    efforts: Efforts | None = None
    """Efforts at which each problem is sampled; left out: those that have training cells."""
    require: list[Rule] = Field(default_factory=list)
    """Rules that a checkpoint must keep, against the start on the same set."""
    prefer: Annotated[list[Preference], Field(min_length=1)]
    """What decides between those that keep them; what is equal there is left to the next one."""
    tie: Literal["earlier", "later"] = "earlier"
    """Which checkpoint is chosen where all of these are equal."""


class MainSet(Section):
    """The set that a release must win on."""

    rollouts: PositiveInt
    """Rollouts of each model."""
    problems: Resource
    """The main set."""
    rules: list[Rule]
    """Against the start on the same problems and seeds."""
    efforts: Efforts | None = None
    """Efforts at which each problem is sampled; left out: those that have training cells."""
    table: Table = STUDY
    """From rules to `WIN` or `NO_WIN`: `study` (all hold), or rows, for instance one a tier."""


class AgentSet(Section):
    """Frozen states of agent tasks."""

    states: Resource
    """JSONL, one state a line: id, task, messages, tools."""
    rollouts_per_state: PositiveInt
    """Turns sampled at each state, by each model."""
    effort: Name = "xhigh"
    """Effort at which a state that names none is sampled."""


class SafetySet(Section):
    """Prompts of a safety smoke test, labelled for both models in one blinded batch."""

    prompts: Resource
    """JSONL, one prompt a line: id, category, prompt."""
    efforts: Efforts
    """Efforts at which each prompt is answered once."""
    raters: Annotated[int, Field(ge=1, le=10)] = 1
    """How many label every answer; where they differ the worse label counts."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """How often a judge model is asked again after a reply that cannot be read."""


class Guard(Rule):
    """A rule of the release, on one of the sets."""

    GUARDS: ClassVar[bool] = True

    on: Stage | None = None
    """Where it is measured; left out: agent and safety measures on their own sets, everything else on `main`."""


class Release(Section):
    """A win on the main set and every guard, or no release."""

    guards: list[Guard]
    """All must hold."""
    main: MainSet | None = None
    """The set that must be won on."""
    agent: AgentSet | None = None
    """Agent turns."""
    safety: SafetySet | None = None
    """Safety smoke."""
    table: Table = STUDY
    """From guards and the main set's label to the label: `study`, or rows of a decision table."""


def guard_set(guard: Guard) -> str:
    """The set that a guard is measured on."""
    if guard.on is not None:
        return guard.on
    where = measures.ALL[guard.measure].where
    return "main" if where == "answers" else where


@dataclass(frozen=True)
class EvaluationSet:
    """A set on which finished models are compared with the start."""

    name: str
    """`held-out`, `never-used`, `selection`, `main`, `agent` or `safety`: as commands and folders name it."""
    field: str
    """Path of its resource in the plan."""
    resource: Resource
    efforts: tuple[str, ...]
    total: int | None
    """Rollouts of each model; None: `each`."""
    each: int
    """Rollouts of each model in each cell, where `total` is None."""

    def per_cell(self, items: int) -> int:
        """Rollouts of each model in each cell, with `items` problems. Raises `UsageError` if they cannot be equally many."""
        if self.total is None:
            return self.each
        cells = items * len(self.efforts)
        if not cells or self.total % cells:
            raise UsageError(
                f"{self.field}: {self.total} rollouts cannot be dealt over {items} problems at {len(self.efforts)} efforts",
                hint="The number of rollouts is that of problems times efforts, or a multiple of it.",
            )
        return self.total // cells


def evaluation_sets(plan: Plan) -> dict[str, EvaluationSet]:
    """Every set that the plan names a file for, by name."""
    own = tuple(effort for effort, ids in plan.problems.cells.items() if ids)
    release = plan.verdict.release
    found = {
        "held-out": ("verdict.held_out.problems", plan.verdict.held_out),
        "never-used": ("verdict.never_used.problems", plan.verdict.never_used),
        "selection": ("extension.selection.problems", plan.extension and plan.extension.selection),
        "main": ("verdict.release.main.problems", release and release.main),
    }
    sets = {
        name: EvaluationSet(name, field, section.problems, tuple(section.efforts or own), section.rollouts, 1)
        for name, (field, section) in found.items()
        if section is not None and section.problems is not None
    }
    if release is not None and release.agent is not None:
        one = release.agent
        sets["agent"] = EvaluationSet(
            "agent", "verdict.release.agent.states", one.states, (one.effort,), None, one.rollouts_per_state
        )
    if release is not None and release.safety is not None:
        two = release.safety
        sets["safety"] = EvaluationSet("safety", "verdict.release.safety.prompts", two.prompts, tuple(two.efforts), None, 1)
    return sets


def doubtful_efforts(plan: Plan) -> list[tuple[str, str]]:
    """(field, what to say) of each effort of a set that nothing else in the plan uses, and that is nearly one which is used."""
    used = {"problems.cells": set(plan.problems.cells)}
    used |= {one.field: set(one.efforts) for one in evaluation_sets(plan).values()}
    found = []
    for field, efforts in used.items():
        others = set().union(*(other for name, other in used.items() if name != field))
        for effort in sorted(efforts - others) if field != "problems.cells" else ():
            near = did_you_mean(effort, sorted(others))
            if near:
                found.append((field, f"its effort `{effort}` is nowhere else in the plan{near}"))
    return found


def evaluation_family(plan: Plan) -> str:
    """The family whose seeds phase 2 samples with."""
    return plan.evaluation.family or plan.main_family


def guard_problems(release: Release, others: Mapping[str, object]) -> list[Problem]:
    """Guards on sets that the plan does not have. `others`: `held_out` and `never_used`, None where the plan has none."""
    sets = {"main": release.main, "agent": release.agent, "safety": release.safety, **others}
    problems: list[Problem] = []
    for place, guard in enumerate(release.guards):
        where = guard_set(guard)
        belongs = measures.ALL[guard.measure].where
        if guard.on is not None and belongs != "answers" and guard.on != belongs:
            problems.append(((place, "on"), f"`{guard.measure}` is measured on `{belongs}` alone"))
        elif guard.on in ("agent", "safety") and belongs == "answers" and guard.measure not in ("total_tokens", "looping"):
            problems.append(((place, "on"), f"`{guard.measure}` is not measured on `{guard.on}`"))
        elif guard.on is not None and sets[where] is None:
            problems.append(((place, "on"), f"the plan has no set `{where}`"))
    return problems
