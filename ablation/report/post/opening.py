"""The beginning of a report: the answer, why, what was promised and what was run."""

from __future__ import annotations

from ablation.plan.cost import update_sizes
from ablation.plan.external import external_sentence
from ablation.plan.model import Plan
from ablation.plan.proofs import PROVEN
from ablation.plan.resources import Resource
from ablation.plan.runs import FIRST_STABLE_ARM
from ablation.plan.words import number as limit_words
from ablation.report.arm_words import arm_formula, reward_in_words, symbols
from ablation.report.phase2_tables import TITLES
from ablation.report.phase2_words import extension_rows, label_rows, phase2_rows, selection_rows
from ablation.report.plan_page import schedule_rows
from ablation.report.post.document import (
    Block,
    Cell,
    Code,
    Column,
    Command,
    Facts,
    Inline,
    Items,
    Parts,
    Section,
    Strong,
    Table,
    text,
    ticked,
)
from ablation.report.post.document import number as num
from ablation.report.post.flow import RunOfArm
from ablation.report.post.readouts import readout_cells
from ablation.report.post.study import Study, tone_of
from ablation.report.post.traces import SWEEP, parts_of, pointer
from ablation.report.verdict_parts import NOTHING
from ablation.report.verdict_tables import arm_sentences, meaning, without_step
from ablation.verdict.labels import merged
from ablation.verdict.model import INCOMPLETE, NOT_RUN, UNDECLARED

_LOCKED = (
    "Arms, seeds, stop rules, thresholds and the rules of every label were written into one file, and locked: a change of any "
    "value after that gives another digest. Whoever noted the digest then can compare it now."
)
_NOT_LOCKED = (
    "Arms, seeds, stop rules, thresholds and the rules of every label stand in one file. It is not locked, so it may have been "
    "written or changed after the figures were known."
)


def opening(study: Study) -> list[Block]:
    """The answer in a few lines, for whoever reads no further."""
    verdict, plan = study.verdict, study.plan
    blocks: list[Block] = []
    if study.reported:
        source = f" Source: {verdict.reported_by}" if verdict.reported_by else ""
        blocks.append(
            text(
                Strong("Reported figures, no rollouts. "),
                "Nothing in this report was computed or checked from rollouts: the plan's rules were applied to figures that "
                f"somebody else published.{source}",
                kind="warning",
            )
        )
    elif verdict.imported:
        who = "All" if not any(one.updates for family in study.flow.families for one in family.runs) else "Some"
        said = f"{who} rollouts were sampled elsewhere and imported: their sampling settings are the importer's word."
        blocks.append(text(Strong("Imported rollouts. "), said, kind="warning"))
    if verdict.label == INCOMPLETE:
        said = "This study is not finished, so its main question has no answer yet. What is missing is listed below."
        blocks.append(text(Strong("Unfinished. "), said, kind="warning"))
    blocks.append(text(meaning(verdict, plan), kind="lead"))
    rows: list[Parts] = [(Code(reason.code), ": ", *ticked(reason.text)) for reason in merged(verdict.reasons)]
    if rows:
        blocks.append(Items(tuple(rows)))
    short = _in_short(study)
    if short:
        blocks += [text("In short, against the starting model in the same seeds:"), Items(tuple(short))]
    blocks += [text(line, kind="warning") for line in without_step(verdict, plan)]
    outside = external_sentence(plan)
    if outside is not None:
        blocks.append(text(outside, kind="warning"))
    later = _later(study)
    if later:
        blocks += [text("The labels of the second phase, each with everything that it was computed under:"), Items(tuple(later))]
    if verdict.missing:
        blocks += _missing(study)
    return blocks


def _in_short(study: Study) -> list[Parts]:
    """The control and the arm that was replicated, family by family; without the latter every arm."""
    control, stable = study.plan.verdict.replication.control, study.verdict.stable_arm
    found: list[Parts] = []
    for place, one in enumerate(study.verdict.arms):
        if one.figures is None or (stable is not None and one.arm not in (control, stable)):
            continue
        who = f"{one.arm}, the control," if one.arm == control else one.arm
        numbers = readout_cells(study, place, one)
        told: list[Parts] = []
        for name, words in (("clean_change", " clean rollouts"), ("logprob_change", " nats of log-probability per token")):
            told += [(numbers[name], words)] if numbers[name].text != NOTHING else []
        told += [(numbers["truncated"], " truncated")] if numbers["truncated"].text != NOTHING else []
        told += [(numbers["tokens_per_correct"], " tokens per correct")] if numbers["tokens_per_correct"].text != NOTHING else []
        parts: list[Inline] = [
            f"{who} in family {one.family}: ",
            study.label(one.label, study.verdict.shown_arm(one)),
        ]
        for number, piece in enumerate(told):
            parts += [": " if number == 0 else ", ", *piece]
        found.append((*parts, "."))
    return found


def _later(study: Study) -> list[Parts]:
    found: list[Parts] = []
    for name, section in study.verdict.sections.items():
        for one in (section, *section.others):
            if one.label != NOT_RUN:
                of = f" {one.subject}" if one.subject is not None else ""
                under = (" under a deviation that its source declares",) if one.deviation else ()
                found.append((f"{TITLES[name]}{of}: ", study.of_section(one), *under))
    return found


def _missing(study: Study) -> list[Block]:
    wanted: dict[str, list[str]] = {}
    for gap in study.verdict.missing:
        wanted.setdefault(gap.command, []).append(gap.what)
    rows: list[Parts] = []
    for command, things in wanted.items():
        rows.append((f"{'; '.join(things)}. What makes it: ", what_makes(command)))
    return [text(Strong("What is missing"), ", and what makes it:"), Items(tuple(rows))]


def what_makes(command: str) -> Inline:
    """A command to copy, or who has to."""
    return Code(command) if command.startswith("ablation ") else command


def promised(study: Study) -> Section:
    """The plan: digest, lock, proofs, deviations, and how its labels are decided."""
    verdict = study.verdict
    rows: list[tuple[str, Parts]] = [("plan digest", (Code(verdict.digest),))]
    if study.bytes_sha256 is not None:
        rows.append(("file, SHA-256", (Code(study.bytes_sha256),)))
    if study.locked_at is None:
        rows.append(
            (
                "lock",
                (
                    Strong("none"),
                    ": nothing shows that the plan's rules are older than the figures",
                ),
            )
        )
    else:
        rows.append(("locked", (f"{study.locked_at} by {study.locked_by}, by the clock and the name of that machine",)))
    for proof in study.proofs:
        limits = f" It does not prove {proof.limits}." if proof.limits else ""
        rows.append((proof.kind, (Strong(proof.state), *ticked(f": {proof.says}.{limits}"))))
    if verdict.journal is not None:
        journal = verdict.journal
        rows.append(("journal", (f"{journal['length']} events, each chained to the one before it; head ", Code(journal["head"]))))
    blocks: list[Block] = [
        text(_LOCKED if study.locked_at is not None else _NOT_LOCKED),
        Facts(tuple(rows)),
    ]
    if study.locked_at is not None and not any(one.state == PROVEN for one in study.proofs):
        blocks.append(
            text(
                "No outside proof of the lock's time was found (no signature, commit or timestamp that could be checked here), "
                "so the order of lock and training rests on the files alone.",
                kind="small",
            )
        )
    blocks += [text(f"Note: {line}.", kind="small") for line in study.warnings]
    parts = [Section("deviations", "Deviations from the plan", _deviations(study)), _decided(study)]
    return Section("plan", "What was promised", blocks, parts)


def _deviations(study: Study) -> list[Block]:
    found = study.verdict.deviations
    declared = [
        (f"{TITLES[name]}{f' {one.subject}' if one.subject else ''}", one.deviation)
        for name, section in study.verdict.sections.items()
        for one in (section, *section.others)
        if one.deviation
    ]
    wrong = [one.text for section in study.verdict.sections.values() for of in (section, *section.others) for one in of.wrong]
    blocks: list[Block] = [text(Strong("Not allowed. "), line, kind="warning") for line in dict.fromkeys(wrong)]
    undeclared = [
        (f"{TITLES[name]}{f' {one.subject}' if one.subject else ''}: ", reason.text)
        for name, section in study.verdict.sections.items()
        for one in (section, *section.others)
        for reason in one.reasons
        if reason.code == UNDECLARED
    ]
    blocks += [text(Strong("Undeclared. "), *line, kind="warning") for line in undeclared]
    if again := study.verdict.attempts.lines():
        blocks += [text(line, kind="warning") for line in again]
    if not found and not declared:
        none = "None was declared." if not study.reported else "The file declares none."
        return [*blocks, text(none)]
    if found:
        rows = [
            (
                f"deviation {one.number}",
                (
                    one.reason,
                    f" (written {one.time} by {one.by}; by then {one.seen} had been seen; "
                    f"{'opens ' + ', '.join(one.opens) if one.opens else 'opens nothing'})",
                ),
            )
            for one in found
        ]
        blocks += [text("Written down before they were done. Every later label carries their numbers."), Facts(tuple(rows))]
    if declared:
        blocks += [text("Declared by the source:"), Facts(tuple((name, (reason or "",)) for name, reason in declared))]
    return blocks


def _decided(study: Study) -> Section:
    rows = [(title, (f"{words}.",)) for title, words in label_rows(study.plan)]
    return Section(
        "decided",
        "How the labels are decided",
        [text("The first that applies:"), Facts(tuple(rows))],
    )


def what_was_run(study: Study, flow_figure: Block | None) -> Section:
    """Arms, schedule, and what became of every run."""
    plan = study.plan
    arms = [
        (name, (*ticked(words), " Weight of a token: ", Code(arm_formula(plan.arms[name])), "."))
        for name, words in arm_sentences(plan)
    ]
    first = plan.arms[plan.verdict.replication.control]
    letters = symbols(plan.arms.values())
    blocks: list[Block] = [
        text("An arm is one training run that changes one thing. These are the arms, in the order of the plan:"),
        Facts(tuple(arms)),
        text(f"{letters} s0: {_s0(plan)}. Reward: {reward_in_words(plan.training.reward_of(first))}.", kind="small"),
        Facts(tuple((name, (words,)) for name, words in (*_model(plan), *_schedule(plan)))),
    ]
    more = [*extension_rows(plan), *selection_rows(plan), *phase2_rows(plan)]
    if more:
        blocks += [
            text("A second phase follows only if the label allows it, or under a deviation:"),
            Facts(tuple((name, (words,)) for name, words in more)),
        ]
    blocks += [flow_figure] if flow_figure is not None else []
    blocks.append(runs_table(study))
    return Section("run", "What was run", blocks)


def _s0(plan: Plan) -> str:
    if plan.training.s0 != "sweep":
        return f"{limit_words(plan.training.s0)} tokens, one scale for all runs"
    return f"one scale for all runs, the mean thinking length of the untruncated rollouts in the sweep of {plan.main_family}"


def _model(plan: Plan) -> list[tuple[str, str]]:
    """What was trained, and on which file of problems."""
    model, lora = plan.model, plan.model.lora
    return [
        ("model", f"{_place(model.base)}: {model.parameters:,} parameters, frozen, {model.dtype}"),
        (
            "adapter",
            f"LoRA, all that training changes: rank {lora.rank}, alpha {lora.alpha}, on {', '.join(lora.targets)}; "
            f"every arm begins with {_place(model.start_adapter)}",
        ),
        ("problems", _place(plan.problems.training)),
    ]


def _place(resource: Resource) -> str:
    return resource.at if resource.sha256 is None else f"{resource.at} (SHA-256 {resource.sha256[:16]}…)"


def _schedule(plan: Plan) -> list[tuple[str, str]]:
    facts = {
        "update_cells": update_sizes(len(plan.cells), plan.training.updates),
        "cells": {effort: len(ids) for effort, ids in plan.problems.cells.items()},
        "families": {name: family.seed for name, family in plan.families.items()},
    }
    return schedule_rows(plan, facts)


def runs_table(study: Study) -> Table:
    """What became of every run, a row each."""
    rows: list[tuple[Cell, ...]] = []
    groups = []
    for place, family in enumerate(study.flow.families):
        groups.append(len(rows))
        sweep = "-" if family.sweep is None else str(family.sweep)
        trace = None
        if family.sweep is not None and not study.reported:
            at = pointer("sweeps", family.family, "rollouts")
            files = [parts_of(f"{family.family}/{SWEEP}")]
            trace = study.traces.verdict([at], files, f"all {family.sweep} rows")
        told = Cell("-") if study.reported else Cell("sampled" if family.sweep is not None else "not there", tone="")
        rows.append((Cell(f"{family.family}/start"), num("-"), num(sweep, trace), told))
        for number, run in enumerate(family.runs):
            rows.append(_run_row(study, run, (place, number)))
    return Table(
        "runs",
        "Every run that the plan asks for or that was begun, and what became of it. A run that a stop rule ended has no readout "
        "and is neither damaged nor stable.",
        (Column("run", False), Column("updates trained"), Column("rollouts read out"), Column("outcome", False)),
        tuple(rows),
        groups=tuple(groups),
    )


def _run_row(study: Study, run: RunOfArm, place: tuple[int, int]) -> tuple[Cell, ...]:
    if run.arm == FIRST_STABLE_ARM:
        return (
            Cell(f"{run.family}/({FIRST_STABLE_ARM})"),
            num(f"0 of {run.planned_updates}"),
            num("-"),
            Cell("not known yet which", tone="open"),
        )
    if study.reported:
        updates, trace = num("-"), None
    elif run.imported and not run.updates:
        updates, trace = Cell("elsewhere"), None
    else:
        at = pointer("flow", "families", place[0], "runs", place[1], "updates")
        files = [f"{run.family}/{run.arm}/update-*/audit.json"]
        trace = study.traces.report(at, files, "one file an update")
        updates = num(f"{run.updates} of {run.planned_updates}", trace)
    rollouts = num("-")
    if run.rollouts is not None:
        own = next(n for n, one in enumerate(study.verdict.arms) if (one.family, one.arm) == (run.family, run.arm))
        at = pointer("arms", own, "measures", "rollouts")
        trace = study.traces.verdict([at], [parts_of(f"{run.family}/{run.arm}/readout")], f"all {run.rollouts} rows")
        rollouts = num(str(run.rollouts), trace)
    if run.stopped is not None:
        update = run.stopped.get("update")
        outcome = Cell(f"{run.label}: rule {run.stopped.get('rule')} after update {update}", tone="bad")
    elif run.label is not None:
        outcome = Cell(run.label, tone=tone_of(run.label.partition(" ")[0]))
    elif run.readout == "partly":
        outcome = Cell("readout not finished", tone="open")
    else:
        outcome = Cell("not finished" if run.begun else "not begun", tone="open")
    return Cell(run.name), updates, rollouts, outcome


def how_to_check(study: Study) -> Section:
    """What a reader who trusts nobody can run."""
    run = study.traces.run
    if study.reported:
        said = "The rules can be applied to the file again. There are no rollouts, so the figures themselves cannot be checked:"
        return Section("check", "How to check it", [text(said), Command(study.traces.command("verdict"))])
    blocks: list[Block] = [
        text(
            "Every number in a table says where it is from: which files of the run folder, which rows, and a command that prints "
            "it again (below each table, and when you point at a number). The commands are for a shell in the folder from "
            "which ",
            Code(str(run)),
            " is found; they need no model and no accelerator. ",
            Code("--at"),
            " takes a place in the JSON of ",
            Code("--json"),
            ".",
        ),
        Command(study.traces.command("verdict")),
        text("A second program, with code of its own, that reads the same rollouts, comes to every label and compares:"),
        Command(f"ablation audit {run}"),
        text("The weights of every update, computed again from the rollouts where that needs no model:"),
        Command(f"{study.traces.command('audit weights')} --recompute"),
    ]
    return Section("check", "How to check it", blocks)
