"""The weights that trained, and the rules that could end a run."""

from __future__ import annotations

from ablation.plan.words import rule_in_words
from ablation.report.numbers import percent
from ablation.report.post.document import Block, Cell, Code, Column, Facts, Figure, Items, Parts, Section, Table, text
from ablation.report.post.document import number as num
from ablation.report.post.study import Study
from ablation.report.post.traces import pointer
from ablation.report.verdict_parts import NOTHING
from ablation.report.verdict_tables import audit_rows, share_range, stop_in_words
from ablation.training.identities import WORDS

SHARES = {"negative_share": "negative", "net_share": "net", "truncated_share": "on truncated", "kl_share": "KL term"}


def weights(study: Study, figure: Figure | None) -> Section:
    """The audit of the weights, and whether what the arms promise of them holds."""
    title = "The weights that trained"
    weighed = audit_rows(study.verdict)
    if study.reported:
        return Section("weights", title, [text("The file has no audit of the weights.")])
    if not weighed:
        return Section("weights", title, [text("No update of this program was audited: none was trained here yet.")])
    rows = []
    for name, shares in weighed.items():
        key, note = name.partition(": ")[0], name.partition(": ")[2]
        cells = []
        for share in SHARES:
            files = [f"{key}/update-*/audit.json"]
            trace = study.traces.verdict([pointer("audits", key, share)], files, "lowest and highest over the updates", "in %")
            cells.append(num(share_range(shares.get(share)), trace if share in shares else None))
        rows.append((Cell(f"{key} ({note})" if note else key), *cells))
    table = Table(
        "weights",
        "Audit of the weights: lowest and highest share over the updates, in % of the update's absolute weight.",
        (Column("run", False), *map(Column, SHARES.values())),
        tuple(rows),
        ("net: sum of the weights / sum of the absolute weights. on truncated: weight on rollouts that hit the token cap.",),
    )
    blocks: list[Block] = [
        text(
            "An arm is nothing but the weight that each sampled token had in training. Of every update it was written down how "
            "much of that weight was negative (pushing tokens down), what the weights sum to, and how much of it sat on "
            "truncated rollouts."
        ),
        table,
        *([figure] if figure is not None else []),
        *_identities(study),
    ]
    outside = [f"{one.family}/{one.arm}" for one in (study.audit.outside if study.audit else ())]
    if outside:
        names = ", ".join(dict.fromkeys(outside))
        blocks.append(
            text(f"{names}: trained by a command outside this program, so there are no weights to audit.", kind="warning")
        )
    return Section("weights", title, blocks)


def _identities(study: Study) -> list[Block]:
    audit = study.audit
    if audit is None or not audit.updates:
        return []
    rows: list[Parts] = []
    for name, words in WORDS.items():
        checked = [identity for one in audit.updates for identity in one.identities if identity.name == name]
        failed = sum(not one.holds for one in checked)
        if checked:
            rows.append(
                (
                    f"{words}: ",
                    f"holds in {len(checked)} of {len(checked)} updates"
                    if not failed
                    else f"FAILS in {failed} of {len(checked)}",
                )
            )
    problems = audit.problems()
    said = f"What must hold of the weights by the arms' own definitions, looked at in {len(audit.updates)} updates:"
    blocks: list[Block] = [text(said), Items(tuple(rows))] if rows else []
    return blocks + [text(line, kind="warning") for line in problems]


def weights_table(study: Study) -> Table:
    """The data behind the figure of the weights."""
    rows: list[tuple[Cell, ...]] = []
    groups: list[int] = []
    before = None
    for place, one in enumerate(study.audit.updates if study.audit else ()):
        name = f"{one.family}/{one.arm}"
        if name != before:
            groups.append(len(rows))
        cells = []
        for share in SHARES:
            value = one.audit["weights"][share]
            at = pointer("updates", place, "weights", share)
            trace = study.traces.audit(at, [f"{name}/update-{one.update}/audit.json"], f"weights.{share}")
            written = NOTHING if value is None else percent(value, 1)
            cells.append(num(written, trace if value is not None else None))
        rows.append((Cell(name if name != before else ""), num(str(one.update)), *cells))
        before = name
    columns = (Column("run", False), Column("update"), *map(Column, SHARES.values()))
    return Table(
        "weights-updates",
        "Shares of the absolute weight, update by update.",
        columns,
        tuple(rows),
        (),
        tuple(groups),
        latex=False,
    )


def stops(study: Study) -> Section:
    """Whether a stop rule ended a run, and which there were."""
    plan, verdict = study.plan, study.verdict
    found = [stop_in_words(one) for one in verdict.arms if one.stopped]
    blocks: list[Block] = []
    if plan.stop_rules:
        blocks.append(text("A run was to end at once, and to have no readout, if at any update:"))
        blocks.append(Facts(tuple((rule.name, (rule_in_words(rule),)) for rule in plan.stop_rules)))
    else:
        blocks.append(text("The plan has no stop rules."))
    if found:
        blocks += [text(line, kind="warning") for line in found]
    elif study.reported:
        blocks.append(text("The file says nothing of stop rules."))
    elif plan.stop_rules:
        elsewhere = [one.name for one in verdict.arms if one.marks]
        if len(elsewhere) < len(verdict.arms) or not verdict.arms:
            blocks.append(
                text("None fired" + (" here." if elsewhere else " in any run so far." if verdict.missing else " in any run."))
            )
        if elsewhere:
            names = ", ".join(elsewhere)
            blocks.append(text(f"Imported, so no stop rule was watched and no update audited by this program: {names}."))
    checks = [line for line in _extensions(study)]
    if checks:
        blocks += [text("Checks of the extension:"), Items(tuple(checks))]
    return Section("stops", "Stop rules", blocks)


def _extensions(study: Study) -> list[Parts]:
    """What the journal tells of an extension's checks and end."""
    rows: list[Parts] = []
    for event in study.events:
        if event.get("event") == "check_judged":
            pauses = f": pauses the extension ({event['pauses']})" if event.get("pauses") else ""
            rows.append((f"{event.get('arm')} after update {event.get('update')}: ", Code(str(event.get("label"))), pauses))
        elif event.get("event") == "extension_stopped":
            rows.append((f"{event.get('arm')}: stop rule {event.get('rule')} ended it after update {event.get('update')}",))
    return rows
