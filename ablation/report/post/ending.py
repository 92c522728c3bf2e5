"""The end of a report: every label, what luck would have done, what nothing here shows, the machine, the cost, the words."""

from __future__ import annotations

from typing import Any

from ablation.plan.proofs import PROVEN
from ablation.report.cost_words import duration
from ablation.report.phase2_tables import TITLES
from ablation.report.plan_review import luck_words
from ablation.report.post.cost import KINDS, Money, Spent
from ablation.report.post.document import (
    Block,
    Cell,
    Code,
    Column,
    Command,
    Facts,
    Items,
    Parts,
    Section,
    Strong,
    Table,
    text,
    ticked,
)
from ablation.report.post.document import number as num
from ablation.report.post.study import Study, tone_of
from ablation.report.post.traces import pointer
from ablation.verdict.locked import Locked
from ablation.verdict.model import STOPPED

SMALL = 10_000_000
"""Parameters below which a model is a demonstration."""


def labels(study: Study) -> Section:
    """Every label once more, in one table."""
    verdict = study.verdict
    rows: list[tuple[Cell, ...]] = []
    at = study.traces.verdict([pointer("label")], ["all that follow"], "as the tables above say")
    codes = ", ".join(dict.fromkeys(reason.code for reason in verdict.reasons))
    headline = Cell(verdict.shown(verdict.label), at, tone=tone_of(verdict.label))
    rows.append((Cell("replication (the headline)"), headline, Cell(codes)))
    for place, one in enumerate(verdict.arms):
        trace = study.traces.verdict([pointer("arms", place, "label")], [f"{one.name}/"], "as the table of damage rules says")
        fired = [result.rule.name for result in one.rules if result.holds]
        open_rules = [result.rule.name for result in one.rules if result.holds is None]
        why = f"fired: {', '.join(fired)}" if fired else f"undecided: {', '.join(open_rules)}" if open_rules else ""
        why = f"stop rule {(one.stopped or {}).get('rule')}" if one.label == STOPPED else why
        rows.append((Cell(one.name), Cell(verdict.shown_arm(one), trace, tone=tone_of(one.label)), Cell(why)))
    for name, section in verdict.sections.items():
        for one in (section, *section.others):
            of = f" {one.subject}" if one.subject is not None else ""
            trace = study.traces.verdict(
                [study.section_place(name, one) + pointer("label")], ["evaluations/"], "as its rules say"
            )
            why = ", ".join(reason.code for reason in one.reasons)
            why = "under a deviation, see there" if one.deviation else why
            rows.append(
                (Cell(f"{TITLES[name]}{of}"), Cell(verdict.shown_section(one), trace, tone=tone_of(one.label)), Cell(why))
            )
    columns = (Column("of", False), Column("label", False), Column("why", False))
    blocks: list[Block] = [Table("labels", "Every label, with everything that it was computed under.", columns, tuple(rows))]
    blocks += [text(f"Note: {note}", kind="small") for note in verdict.notes]
    return Section("labels", "Every label", blocks)


def luck(study: Study, loaded: Locked) -> Section | None:
    """How often each label would come out if nothing differed; None if that was not simulated."""
    if study.luck is None:
        return None
    found = luck_words(loaded, study.luck)  # type: ignore[arg-type]
    groups: list[tuple[str, list[dict[str, Any]]]] = [
        ("label", found["labels"]),
        ("reason (a study can have several)", found["reasons"]),
        ("damage rule fires for a run", found["rules"]),
        *([("stop rule ends a run", found["stops"])] if found["stops"] else []),
        *((f"{one['title']}: rule holds for an equal model", one["rules"]) for one in found["sections"]),
    ]
    rows: list[tuple[Cell, ...]] = []
    starts = []
    for what, lines in groups:
        starts.append(len(rows))
        rows += [(Cell(what if place == 0 else ""), Cell(line["name"]), num(line["shown"])) for place, line in enumerate(lines)]
    columns = (Column("what", False), Column("which", False), Column("share of simulated studies or runs"))
    caption = f"{found['studies']:,} simulated studies of this plan in which no arm differs from the start: what luck alone does."
    table = Table("luck", caption, columns, tuple(rows), (found["assumed"],), tuple(starts))
    said = (
        "Before a plan is locked, its whole decision is simulated under the assumption that training changes nothing at all. "
        f"These are the numbers that `plan lock` prints, made again. {found['sentence']}"
    )
    blocks: list[Block] = [
        text(*ticked(said)),
        table,
        Command(f"ablation plan power {study.plan_file} --studies {found['studies']}"),
        text("What this leaves out:", kind="small"),
        Items(tuple((line,) for line in found["left_out"])),
    ]
    return Section("luck", "What luck alone would do", blocks)


def limits(study: Study) -> Section:
    """What a reader must not take from all this."""
    verdict = study.verdict
    lines: list[Parts] = [(line,) for line in _sentences(verdict.unit_of_claim)]
    lines.append(("Arms that are stable are not ranked: the plan asks whether each is damaged, not which is best.",))
    if study.reported:
        lines.append(("The figures are those of their source. None of them could be recomputed.",))
    else:
        if not any(one.state == PROVEN for one in study.proofs):
            lines.append(
                ("A lock shows what was promised, not when: whoever can rewrite plan and lock together can start over.",)
            )
        lines.append(
            ("No check of files can show that the stored log-probabilities are the model's; only running the model can.",)
        )
        lines.append(("Rollouts that were made elsewhere, under no plan, leave no trace here.",))
    if study.plan.model.parameters < SMALL:
        size = f"The model has {study.plan.model.parameters:,} parameters."
        lines.append((f"{size} What happens in it need not happen in one that people use.",))
    return Section("limits", "What this does not show", [Items(tuple(lines))])


def _sentences(whole: str) -> list[str]:
    return [one if one.endswith(".") else f"{one}." for one in whole.split(". ") if one]


def machine(study: Study) -> Section | None:
    """Versions and hardware, and what the run took."""
    if study.reported:
        return None
    blocks: list[Block] = []
    for place, one in enumerate(study.environments):
        packages = ", ".join(f"{name} {version}" for name, version in (one.get("packages") or {}).items())
        git = one.get("git") or {}
        commit: Parts = ("not from a checkout",)
        if git.get("commit"):
            commit = (Code(str(git["commit"])), " with changes that were not committed" if git.get("dirty") else "")
        rows: list[tuple[str, Parts]] = [
            ("device", (str(one.get("accelerator") or "no accelerator"),)),
            ("processor", (f"{one.get('cpu')}, {one.get('cpu_count')} cores, {one.get('threads')} used",)),
            ("system", (f"{one.get('platform')}, Python {one.get('python')}",)),
            ("packages", (packages,)),
            ("program's commit", commit),
        ]
        if len(study.environments) > 1:
            blocks.append(text(Strong(f"Environment {place + 1} of {len(study.environments)}")))
        blocks.append(Facts(tuple(rows)))
    if not blocks:
        blocks.append(text("No model was loaded in this run: nothing was sampled or trained here."))
    parts = [Section("cost", "What it took", _cost(study))]
    return Section("environment", "Environment and cost", blocks, parts)


def _cost(study: Study) -> list[Block]:
    cost = study.cost
    journal = ["journal.jsonl"]
    if not cost.kinds and not cost.imported.stages:
        return [text("The journal tells of no work yet.")]
    rows: list[tuple[Cell, ...]] = []

    def row(name: str, one: Spent, at: str, rollouts: bool, events: str) -> tuple[Cell, ...]:
        def cell(what: str, value: str) -> Cell:
            return num(value, study.traces.report(at + pointer(what), journal, events, "summed"))

        return (
            Cell(name),
            cell("stages", f"{one.stages:,}"),
            cell("rollouts", f"{one.rollouts:,}") if rollouts else num("-"),
            cell("tokens", f"{one.tokens:,}"),
            cell("seconds", f"{one.seconds:,.1f}"),
        )

    for kind, one in cost.kinds.items():
        events = {"training": "events update_trained", "command": "events command_ended"}.get(kind, "events stage_sampled")
        rows.append(row(KINDS[kind], one, pointer("cost", "kinds", kind), kind not in ("training", "command"), events))
    if cost.imported.stages:
        rows.append(
            row("imported (sampled elsewhere)", cost.imported, pointer("cost", "imported"), True, "events stage_imported")
        )
    columns = (Column("what", False), Column("stages or updates"), Column("rollouts"), Column("tokens"), Column("seconds"))
    note = (
        "tokens: sampled ones; of training, those with a weight. Prompts are left out. seconds: of a stage "
        "that was interrupted, those of the session that finished it."
    )
    table = Table("cost", "What the run took, as its journal tells.", columns, tuple(rows), (note,), latex=False)
    facts: list[tuple[str, Parts]] = []
    for place, seconds in cost.devices.items():
        if seconds:
            trace = study.traces.report(pointer("cost", "devices", place), journal, "events with seconds", "summed, in seconds")
            hours = num(f"{seconds / 3600:.2f} hours", trace)
            facts.append(("device time", (hours, f" ({duration(seconds)}) of sampling and training on {place}")))
    if cost.service_seconds:
        trace = study.traces.report(pointer("cost", "service_seconds"), journal, "events with seconds", "summed, in seconds")
        hours = num(f"{cost.service_seconds / 3600:.2f} hours", trace)
        facts.append(("service time", (hours, " in which a training service sampled and trained; it is paid by tokens")))
    if cost.wall_seconds is not None:
        trace = study.traces.report(pointer("cost", "wall_seconds"), journal, "first and last event", "in seconds")
        span = num(f"{cost.wall_seconds:,.0f} s", trace)
        facts.append(("first to last event", (f"{cost.began} to {cost.ended}: ", span, ", pauses included")))
    if cost.reused:
        facts.append(
            ("taken over", (f"{cost.reused:,} rollouts of references came from an earlier comparison and cost nothing",))
        )
    if study.money is None:
        facts.append(("money", ("The plan names no prices, so nothing is said in money.",)))
        return [table, Facts(tuple(facts))]
    return [table, Facts(tuple(facts)), *_money(study, study.money)]


def _money(study: Study, found: Money) -> list[Block]:
    """What was spent by the plan's prices: a row for each product, and their sum."""
    rows: list[tuple[Cell, ...]] = []
    for place, one in enumerate(found.bill.charges):
        files = ["journal.jsonl", *(["*/*/*/part-*.parquet"] if one.what in ("prefill", "sample") else [])]
        at = pointer("cost", "money", "charges", place, "shown")
        trace = study.traces.report(at, files, _COUNTED.get(one.what, "events with seconds"), one.formula)
        shown = one.as_json()["shown"]
        rows.append((Cell(one.what), Cell(one.formula), num(shown, trace) if one.amount is not None else Cell(shown, trace)))
    at = pointer("cost", "money", "shown")
    trace = study.traces.report(at, ["plan.yaml", "journal.jsonl"], "the rows above", "summed before they are rounded")
    rows.append((Cell("all"), Cell("the sum of the rows above"), Cell(found.bill.words, trace)))
    notes = ["Prices are the plan's, sums are decimal and exact; an hour is rounded to a billionth of the currency."]
    if found.bill.unpriced:
        notes.append(f"The plan has no price for {', '.join(found.bill.unpriced)}: not counted.")
    if found.tokens:
        notes.append(
            "prefill: the prompt of every rollout that is there, and what was scored alone. train: prompts included. All with "
            "the preflight's. Storage and work that was lost with a killed runner are not counted."
        )
    if found.upper:
        notes.append(f"{found.upper:,} updates do not say how many tokens were trained on; all of their rollouts are counted.")
    if found.imported:
        notes.append(f"{found.imported:,} rollouts were sampled elsewhere and are not priced.")
    if any((event.get("machine") or {}).get("server") for event in study.events if event.get("event") == "model_loaded"):
        notes.append("The devices of the vLLM server that sampled are not in the journal, so they are not priced.")
    if study.cost.kinds.get("command"):
        notes.append("Commands of external arms are priced by the device that the run had; what else they used is not known.")
    columns = (Column("what", False), Column("quantity and price", False), Column("money"))
    caption = "What the run cost by the plan's own prices."
    return [Table("money", caption, columns, tuple(rows), tuple(notes))]


_COUNTED = {
    "prefill": "prompt_length of every rollout, scored_tokens of events update_trained, preflight of model_loaded",
    "sample": "token_ids of every rollout, preflight of events model_loaded",
    "train": "trained_tokens of events update_trained, preflight of events model_loaded",
}
"""Kind of token -> which rows it is summed from."""
