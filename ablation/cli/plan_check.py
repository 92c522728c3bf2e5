"""What `plan check` and `plan lock` refuse: the plan itself, its rules, and what is in the files that are at hand."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablation.cli.plan_power import refuse_idle_rules

if TYPE_CHECKING:
    from ablation.plan.load import LoadedPlan, PlanError
    from ablation.plan.model import Plan
    from ablation.plan.resources import Resource
    from ablation.plan.yaml_reader import Document

Found = tuple[tuple[str | int, ...], str]
"""(path in the plan, what is wrong there)"""
_NAMED = ("model.base", "model.start_adapter", "problems.training", "verdict.held_out.problems", "verdict.never_used.problems")


def checked_plan(file: Path) -> LoadedPlan:
    """The plan in `file`, if nothing is wrong with it, its rules and its files. Files that are missing or owed are passed over.

    Raises `PlanError` with all that is wrong. For a plan that is not valid itself that is what the valid parts of it lead to,
    and the error's hint names what was not looked at.
    """
    from ablation.ledger.never_used import never_used_problems
    from ablation.plan.load import PlanError, load_plan, read_plan_file
    from ablation.plan.locate import resources_of
    from ablation.plan.model_files import model_problems
    from ablation.plan.yaml_reader import read_yaml

    try:
        loaded = load_plan(file)
    except PlanError as error:
        document = read_yaml(read_plan_file(file))
        if isinstance(document.value, dict):
            raise _with_files(error, document) from None
        raise
    faults: list[Found] = []
    try:
        refuse_idle_rules(loaded)
    except PlanError as error:
        faults += [(fault.path, fault.text) for fault in error.problems]
    plan = loaded.plan
    faults += problem_faults(resources_of(plan), plan.problems.cells, file)
    faults += set_faults(plan, file)
    faults += deal_faults(plan, file)
    faults += model_problems(plan, file)
    faults += seed_faults(plan)
    faults += effort_faults(plan, file)
    if not faults:  # with every file readable
        at = ("verdict", "never_used", "problems")
        faults += [(at, f"not never used: {line}") for line in never_used_problems(plan, file)]
        faults += [(at, f"whether they were ever used cannot be known: {line}") for line in ledger_gaps(plan, file)]
    loaded.refuse(faults)
    return loaded


def ledger_gaps(plan: Plan, plan_path: Path) -> list[str]:
    """For a plan with never-used problems: stages of runs beside the ledger that it has no mark of: it was cut or lost.

    Raises `IntegrityError` for a ledger or a journal that was edited.
    """
    from ablation.ledger.ledger import ledger_path, read_ledger
    from ablation.rollouts.marked import unmarked_stages

    section = plan.verdict.never_used
    if section is None or section.problems is None:
        return []
    path = ledger_path(plan_path)
    lines = unmarked_stages(read_ledger(path), path.parent)
    more = [f"and {len(lines) - 3} further stages"] if len(lines) > 3 else []
    return lines[:3] + more


def effort_faults(plan: Plan, plan_path: Path) -> list[Found]:
    """Efforts between which the chat template of the base makes no difference or that it refuses, if the base is at hand."""
    from ablation.plan.locate import locate
    from ablation.problems.template import effort_fault

    if plan.model.base.owed is not None or len(plan.problems.cells) < 2:
        return []
    found = effort_fault(locate(plan.model.base, plan_path), plan.problems.cells)
    return [] if found is None else [(("problems", "cells", found[0]), found[1])]


def seed_faults(plan: Plan) -> list[Found]:
    """Proof, for the whole plan, that no two rollouts share a seed unless the plan pairs them."""
    from ablation.study.schedule import all_seeds

    seen: dict[int, tuple[str, str, str, int]] = {}
    for rollout, seed in all_seeds(plan).items():
        if seed in seen:
            return [(("families",), f"{seen[seed]} and {rollout} would be sampled with the same seed; change a family's seed")]
        seen[seed] = rollout
    return []


def problem_faults(resources: Mapping[str, Resource], cells: Mapping[str, list], plan_path: Path) -> list[Found]:
    """What is wrong with the files in `resources` (field path -> resource) that are at hand.

    A digest that is not the plan's, ids in `cells` that the training file does not have, golds that do not grade as correct,
    and held-out or never-used problems that are trained on, under the same id or another.
    """
    from ablation.errors import UsageError
    from ablation.files import sha256_path
    from ablation.plan.locate import locate, resource_path, way_out
    from ablation.plan.section import did_you_mean
    from ablation.problems.digest import fingerprint
    from ablation.problems.grade import check_problems
    from ablation.problems.problem import load_problems

    faults: list[Found] = []
    files = {}
    for name, resource in resources.items():
        place = resource_path(name)
        path = locate(resource, plan_path)
        if resource.owed is not None or not os.path.exists(path):  # False, too, for a name that no file can have
            continue
        if resource.sha256 is not None and (found := sha256_path(path)) != resource.sha256:
            text = f"found {resource.sha256}, but the digest of {path} is {found}{way_out(resource, path, plan_path)}"
            faults.append(((*place, "sha256"), text))
        elif place[-1] in ("training", "problems"):
            try:
                files[name] = load_problems(path)
            except UsageError as error:
                faults.append((place, " ".join(error.lines())))
            else:
                faults += [(place, f"{path}: {line}") for line in check_problems(files[name])]
    training = files.get("problems.training")
    if training is not None:
        for effort, ids in cells.items():
            for index, problem in enumerate(ids):
                if isinstance(problem, str) and problem not in training:
                    at = ("problems", "cells", effort, index)
                    faults.append((at, f"there is no problem `{problem}` in the file{did_you_mean(problem, training)}"))
    trained = {problem for ids in cells.values() for problem in ids if isinstance(problem, str)}
    texts = {fingerprint(training[one]).text for one in trained if training and one in training}
    for name, problems in files.items():
        shared = sorted(one for one, problem in problems.items() if one in trained or fingerprint(problem).text in texts)
        if name != "problems.training" and shared:
            faults.append((resource_path(name), f"{len(shared)} of these problems are trained on: {', '.join(shared[:5])}"))
    return faults


def set_faults(plan: Plan, plan_path: Path) -> list[Found]:
    """Agent states and safety prompts that cannot be read, or that the chat template of the base would not show whole."""
    from ablation.errors import UsageError
    from ablation.plan.locate import locate
    from ablation.problems.call_format import counts_calls
    from ablation.problems.check_sets import safety_left_out, states_left_out

    release, faults = plan.verdict.release, []
    base = None if plan.model.base.owed is not None else locate(plan.model.base, plan_path)
    for name, field in (("agent", "states"), ("safety", "prompts")):
        section = release and getattr(release, name)
        resource = section and getattr(section, field)
        if not resource or resource.owed is not None or not os.path.exists(path := locate(resource, plan_path)):
            continue
        try:
            if name == "agent":
                found = states_left_out(path, section.effort, base, plan.model.tokens, counts_calls(release))
            else:
                found = safety_left_out(path, section.efforts, base, plan.model.tokens)
        except UsageError as error:
            found = " ".join(error.lines())
        if found:
            faults.append((("verdict", "release", name, field), found))
    return faults


def deal_faults(plan: Plan, plan_path: Path) -> list[Found]:
    """Numbers of rollouts that do not go into the problems and efforts of their set; found now, not when arms are trained."""
    from ablation.errors import UsageError
    from ablation.plan.locate import locate
    from ablation.plan.phase2 import evaluation_sets
    from ablation.problems.problem import load_problems

    faults: list[Found] = []
    for one in evaluation_sets(plan).values():
        path = locate(one.resource, plan_path)
        if one.total is None or one.name == "safety" or one.resource.owed is not None or not os.path.exists(path):
            continue
        try:
            cells = len(load_problems(path)) * len(one.efforts)
        except UsageError:
            continue  # `problem_faults` has said so
        if one.total % cells:
            text = (
                f"found {one.total} rollouts for {cells} cells ({cells // len(one.efforts)} problems, {len(one.efforts)} efforts)"
            )
            at = (*one.field.split(".")[:-1], "rollouts")
            faults.append((at, f"{text}; each cell gets equally many, so it is a multiple of {cells}"))
    return faults


def _with_files(error: PlanError, document: Document) -> PlanError:
    """`error` and what is wrong in the files that the valid parts of its plan name."""
    from pydantic import ValidationError

    from ablation.plan.explain import fault_at
    from ablation.plan.load import PlanError
    from ablation.plan.resources import Resource

    resources, invalid = {}, []
    for name in _NAMED:
        place = tuple(name.split("."))
        try:
            resources[name] = Resource.model_validate(_value(document, place))
        except ValidationError:
            invalid += [name] if place in document.values else []
    cells = _value(document, ("problems", "cells"))
    cells = {effort: ids for effort, ids in cells.items() if isinstance(ids, list)} if isinstance(cells, dict) else {}
    faults = [fault_at(document, *found) for found in problem_faults(resources, cells, error.path)]
    later = ["whether each rule can fire", "the decision tables", "the shape of the model", *invalid]
    hint = f"Not looked at before the plan itself is right: {', '.join(later)}."
    return PlanError(error.path, sorted({*error.problems, *faults}), hint)


def _value(document: Document, place: tuple[str, ...]) -> Any:
    """What is at `place` in the file, None if there is nothing."""
    value = document.value
    for name in place:
        value = value.get(name) if isinstance(value, dict) else None
    return value
