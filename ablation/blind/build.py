"""From the stages of a comparison and a secret to what raters see and the key: the same each time, so that it can be checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ablation.blind.batch import ANSWERS, PAIRS, Batch, Item
from ablation.blind.choose import Candidate, choose
from ablation.blind.key import REFERENCE, SUBJECT, Key, shuffled, subject_first
from ablation.blind.texts import neutral, tags_of
from ablation.errors import IntegrityError, UsageError
from ablation.plan.model import START, Plan
from ablation.plan.phase2 import BlindedRead, SafetySet, evaluation_sets
from ablation.problems.chat import messages_text
from ablation.problems.problem import Problem, load_problems
from ablation.problems.safety_prompts import load_safety_prompts
from ablation.rollouts.blind_record import BlindFolder
from ablation.rollouts.grades import grades_of
from ablation.rollouts.stage import Stage
from ablation.rollouts.store import read_stage
from ablation.rollouts.thinking import split

Place = tuple[str, str, int]
"""Problem or prompt, effort, index: what names a rollout within a stage."""


@dataclass(frozen=True)
class Built:
    """A batch with its key, and what only the rollouts know of it."""

    batch: Batch
    key: Key
    unasked: tuple[tuple[str, Place], ...] = ()
    """(model, rollout) of answers that are empty: no rater is asked about them."""


@dataclass(frozen=True)
class Sides:
    """Both models on a set; row numbers by the name of the rollout."""

    subject: Stage
    reference: Stage

    def rows(self, model: str) -> dict[Place, int]:
        stage = self.stage(model)
        return {place: row for row, place in enumerate(zip(stage.problem, stage.effort, stage.index.tolist(), strict=True))}

    def stage(self, model: str) -> Stage:
        return self.subject if model == SUBJECT else self.reference


def settings_of(plan: Plan, name: str) -> BlindedRead | SafetySet:
    """What the plan says of the blinded read of the set `name`. Raises `UsageError` if it asks for none."""
    found: BlindedRead | SafetySet | None = None
    if name == "held-out" and plan.verdict.held_out is not None:
        found = plan.verdict.held_out.blinded_read
    if name == "safety" and plan.verdict.release is not None:
        found = plan.verdict.release.safety
    if found is None:
        raise UsageError(
            f"the plan has no blinded read of the set `{name}`",
            hint="Pairs are read of `held-out`, answers are labelled of `safety`, where the plan has them.",
        )
    return found


def read_sides(folder: BlindFolder, plan_digest: str | None = None) -> Sides:
    """Both stages of the comparison.

    Raises:
        IncompleteError: one of them is not complete.
        IntegrityError: they are not those of this comparison, or a rollout's seed differs between the two.
    """
    run, name, subject = folder.run, folder.name, folder.subject
    places = {SUBJECT: run.evaluated(name, subject), REFERENCE: run.evaluated_reference(name, subject)}
    stages = {model: read_stage(place) for model, place in places.items()}
    arm, _, updates = subject.partition("@")
    for model, expected in ((SUBJECT, (arm, int(updates), name)), (REFERENCE, (START, 0, name))):
        info = stages[model].info
        if (info.arm, info.update, info.stage) != expected:
            raise IntegrityError(
                f"{places[model]}: holds {info.arm}@{info.update} on `{info.stage}`, not {'@'.join(map(str, expected[:2]))}"
            )
        if plan_digest is not None and info.plan_digest != plan_digest:
            raise IntegrityError(f"{places[model]}: was sampled under another plan ({info.plan_digest[:12]})")
    sides = Sides(stages[SUBJECT], stages[REFERENCE])
    theirs = sides.rows(REFERENCE)
    for place, row in sides.rows(SUBJECT).items():
        other = theirs.get(place)
        if other is not None and sides.subject.seed[row] != sides.reference.seed[other]:
            raise IntegrityError(f"{places[SUBJECT]}: rollout {sides.subject.name(row)} has another seed than the start's")
    return sides


def build(folder: BlindFolder, plan: Plan, secret: bytes, sides: Sides | None = None) -> Built:
    """The batch of `folder` under `secret`. Raises `TooFewPairs`, or as `read_sides`."""
    sides = sides or read_sides(folder)
    if folder.kind == ANSWERS:
        return _answers(folder, plan, secret, sides)
    return _pairs(folder, plan, secret, sides)


def chosen_pairs(folder: BlindFolder, plan: Plan, sides: Sides, problems: Mapping[str, Problem]) -> list[Candidate]:
    """The pairs that the fixed rule chooses. Raises `TooFewPairs`."""
    settings = settings_of(plan, folder.name)
    assert isinstance(settings, BlindedRead)
    solved = {}
    for model, place in ((SUBJECT, folder.run.evaluated), (REFERENCE, folder.run.evaluated_reference)):
        stage = sides.stage(model)
        grades = grades_of(place(folder.name, folder.subject), stage, problems)
        right = {row for row, grade in enumerate(grades) if grade is not None and grade.status == "correct"}
        solved[model] = {place: row for place, row in sides.rows(model).items() if row in right}
    lengths = split(sides.reference).lengths
    both = [place for place in solved[REFERENCE] if place in solved[SUBJECT]]
    candidates = [Candidate(*place, int(lengths[solved[REFERENCE][place]])) for place in both]
    return choose(candidates, efforts_of(plan, folder.name), settings.pairs)


def efforts_of(plan: Plan, name: str) -> tuple[str, ...]:
    """Efforts of the set, in the plan's order."""
    sets = evaluation_sets(plan)
    if name in sets:
        return sets[name].efforts
    return tuple(effort for effort, ids in plan.problems.cells.items() if ids)


def _pairs(folder: BlindFolder, plan: Plan, secret: bytes, sides: Sides) -> Built:
    problems = load_problems(folder.run.set_problems(folder.name))
    names = [(one.problem, one.effort, one.index) for one in chosen_pairs(folder, plan, sides, problems)]
    first, tags = subject_first(secret, names), tags_of(plan)
    rows = {model: sides.rows(model) for model in (SUBJECT, REFERENCE)}
    items, key = [], []
    for number, at in enumerate(shuffled(secret, names), start=1):
        models = (SUBJECT, REFERENCE) if first[at] else (REFERENCE, SUBJECT)
        shown = {}
        for side, model in zip("XY", models, strict=True):
            stage, row = sides.stage(model), rows[model][names[at]]
            texts = {"thinking": stage.thinking_text[row], "answer": stage.answer_text[row]}
            shown[side] = {name: neutral(text, tags) for name, text in texts.items()}
        problem, effort, index = names[at]
        items.append(Item(number, problems[problem].prompt, shown))
        key.append({"number": number, "X": models[0], "Y": models[1], "problem": problem, "effort": effort, "index": index})
    batch = Batch(PAIRS, tuple(items))
    return Built(batch, Key(secret, batch.sha256, key))


def _answers(folder: BlindFolder, plan: Plan, secret: bytes, sides: Sides) -> Built:
    prompts, tags = load_safety_prompts(folder.run.set_problems(folder.name)), tags_of(plan)
    names: list[tuple[str, Place]] = []
    texts: list[str] = []
    unasked = []
    for model in (SUBJECT, REFERENCE):
        stage = sides.stage(model)
        for place, row in sorted(sides.rows(model).items()):
            if place[0] not in prompts:
                raise IntegrityError(f"rollout {stage.name(row)}: there is no safety prompt `{place[0]}`")
            text = neutral(stage.answer_text[row], tags)
            if not text.strip():
                unasked.append((model, place))
                continue
            names.append((model, place))
            texts.append(text)
    items, key = [], []
    for number, at in enumerate(shuffled(secret, [(model, *place) for model, place in names]), start=1):
        model, (name, effort, index) = names[at]
        prompt = prompts[name]
        items.append(Item(number, messages_text(prompt.messages), {"answer": {"answer": texts[at]}}, prompt.labels))
        key.append({"number": number, "model": model, "prompt": name, "effort": effort, "index": index})
    batch = Batch(ANSWERS, tuple(items))
    return Built(batch, Key(secret, batch.sha256, key), tuple(unasked))
