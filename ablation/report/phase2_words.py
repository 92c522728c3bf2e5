"""Phase 2 of a plan in words: its sets, tables, guards, selection and claims, for the pages that are read before locking."""

from __future__ import annotations

from ablation.plan.extension import FIRST_STABLE, eligible_checks, extension_family
from ablation.plan.model import Plan
from ablation.plan.phase2 import evaluation_family, evaluation_sets, guard_set
from ablation.plan.rules import Rule
from ablation.plan.tables import STUDY, Table, rows_of
from ablation.verdict.tables import in_words

START = "the starting model"
TITLE = "Phase 2: what is sampled and compared, only after REPLICATED"
Group = tuple[str, list[Rule], int | None]
"""(key of `plan_page.RULE_TITLES`, rules, rollouts of each model if they are one number)."""


def rule_groups(plan: Plan) -> list[Group]:
    """The lists of rules of phase 2, in the order in which they are judged."""
    verdict, found = plan.verdict, []
    for name in ("held_out", "never_used"):
        section = getattr(verdict, name)
        if section is not None:
            found.append((name, section.rules, section.rollouts))
    if plan.extension is not None and plan.extension.selection is not None:
        found.append(("selection", plan.extension.selection.require, plan.extension.selection.rollouts))
    if verdict.release is not None:
        if verdict.release.main is not None:
            found.append(("main", verdict.release.main.rules, verdict.release.main.rollouts))
        found.append(("release", verdict.release.guards, None))
    return found


def rollouts_of_guard(plan: Plan, guard: Rule) -> int | None:
    """Rollouts of each model that a guard is measured on, where the plan alone says so."""
    where, verdict = guard_set(guard), plan.verdict  # type: ignore[arg-type]
    section = verdict.release and verdict.release.main if where == "main" else getattr(verdict, where, None)
    return None if section is None else section.rollouts


def guard_words(guard: Rule) -> str:
    """Where a guard is measured."""
    return f" (on {guard_set(guard).replace('_', '-')})"  # type: ignore[arg-type]


def phase2_rows(plan: Plan) -> list[tuple[str, str]]:
    """Each set with its size, how it is judged, and how both models are sampled; nothing for a plan without sets."""
    sets = evaluation_sets(plan)
    rows = []
    for name, one in sets.items():
        if name == "agent":
            words = f"frozen states, {one.each} turn{'s' * (one.each > 1)} at each by each model, effort {one.efforts[0]}"
        elif name == "safety":
            words = f"prompts, one answer at each of {', '.join(one.efforts)} by each model, labelled in one blinded batch"
        else:
            words = f"{one.total} rollouts of each model, at {', '.join(one.efforts)}"
        rows.append((name, words))
    if not rows:
        return []
    evaluation = plan.evaluation
    both = (
        f"in the seeds of family {evaluation_family(plan)}, within {evaluation.same_day_hours:g} hours; a start that is sampled "
        f"again raises a flag if {evaluation.drift} or more of its answers turn"
    )
    return [*rows, ("start and subject", both), *_reads(plan)]


def _reads(plan: Plan) -> list[tuple[str, str]]:
    rows = []
    if plan.verdict.held_out is not None:
        read = plan.verdict.held_out.blinded_read
        raters = "1 rater" if read.raters == 1 else f"{read.raters} raters, each of whom must let a pair pass"
        orders = "a judge model is asked in both orders" if read.both_orders else "each pair is shown in one random order"
        words = (
            f"{read.pairs} pairs that both models solved, by a fixed rule; {raters}; {orders}; {read.retries} more attempts "
            f"after a reply that cannot be read; undecided above {read.unparsed_limit:.0%} of such replies"
        )
        rows.append(("blinded read", words))
    safety = plan.verdict.release and plan.verdict.release.safety
    if safety:
        many = "1 rater" if safety.raters == 1 else f"{safety.raters} raters; where they differ the worse label counts"
        rows.append(("labels", f"{many}; {safety.retries} more attempts after a reply that cannot be read"))
    return rows


def extension_rows(plan: Plan) -> list[tuple[str, str]]:
    """Which arm goes on, for how long, what pauses it and which checkpoints may be chosen; nothing without an extension."""
    found = plan.extension
    if found is None:
        return []
    first, last = plan.training.updates + 1, found.updates
    further = f"{first} to {last}" if last > first else f"{last}"
    arm = "the first stable one in plan order" if found.arms == FIRST_STABLE else ", ".join(found.arms)
    own = "the damage rules" if found.damage is None else "its own rules"
    return [
        ("arm", f"{arm}, in family {extension_family(plan)}"),
        (
            "updates",
            f"{further}, from the last checkpoint and its optimizer state; the cells are "
            f"shuffled anew every {plan.training.updates}",
        ),
        (
            "checks",
            f"after {_listed(found.checks)}: {plan.sweep_rollouts} rollouts against the family's sweep; the run pauses if one of "
            f"{own} holds",
        ),
        ("eligible", f"for a later choice: what is saved after {_listed(eligible_checks(found))}, if its check finds no damage"),
    ]


def _listed(updates: list[int]) -> str:
    words = [str(update) for update in updates]
    return "update " + words[0] if len(words) == 1 else f"updates {', '.join(words[:-1])} and {words[-1]}"


def selection_rows(plan: Plan) -> list[tuple[str, str]]:
    """How a checkpoint is chosen; nothing without a selection."""
    extension = plan.extension
    if extension is None or extension.selection is None:
        return []
    found = extension.selection
    updates = ", ".join(map(str, eligible_checks(extension)))
    steps = ", then ".join(f"{one.order} {one.measure}" for one in found.prefer)
    kept = f"those that keep {', '.join(rule.name for rule in found.require)}" if found.require else "all of them"
    return [
        ("selection", f"between the checkpoints after {updates} that found no damage; {kept}; {steps}; then the {found.tie} one"),
    ]


def label_rows(plan: Plan) -> list[tuple[str, str]]:
    """Each decision table: section -> its rows in words."""
    verdict = plan.verdict
    tables: list[tuple[str, str, Table]] = [("replication", "replication", verdict.replication.table)]
    if verdict.held_out is not None:
        tables.append(("held-out", "held_out", verdict.held_out.table))
    if verdict.never_used is not None:
        tables.append(("never-used", "never_used", verdict.never_used.table))
    if verdict.release is not None:
        if verdict.release.main is not None:
            tables.append(("main set", "main", verdict.release.main.table))
        tables.append(("release", "release", verdict.release.table))
    return [(title, table_words(section, table)) for title, section, table in tables]


def table_words(section: str, table: Table) -> str:
    """`NO_WIN if not (all rules hold); else WIN_VERIFIED if blinded_read is PASSED; else WIN_UNVERIFIED`."""
    rows = rows_of(section, table)
    parts = [f"{row.label} if {in_words(row.when)}" if row.when is not None else row.label for row in rows]
    return "; else ".join(parts) + ("" if table == STUDY else " (the plan's own table)")


def claim_rows(plan: Plan) -> list[tuple[str, str]]:
    """Each claim that is tested beside the labels."""
    rows = []
    for name, claim in plan.verdict.claims.items():
        side = {"greater": "greater than", "less": "less than", "two_sided": "other than"}[claim.side]
        families = ", ".join(claim.families or [plan.main_family])
        speaks = "of the recipe, over training seeds" if claim.method == "welch" else "of these checkpoints"
        corrected = f", Holm over {len(claim.subjects)} arms" if claim.correction == "holm" and len(claim.subjects) > 1 else ""
        words = (
            f"{claim.measure} of {', '.join(claim.subjects)} is {side} that of {claim.reference} in {families}: {claim.method}, "
            f"alpha {claim.alpha:g}{corrected}; speaks {speaks}"
        )
        rows.append((name, words))
    return rows
