"""The draft of a model card for a merged model: from data alone, every text of others escaped, and no claim beyond the labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablation.plan.external import external_sentence
from ablation.plan.model import START, Plan
from ablation.plan.words import number
from ablation.report.phase2_tables import TITLES
from ablation.report.post.markdown import code, escaped
from ablation.report.verdict_parts import shown_number
from ablation.report.verdict_tables import arm_sentences
from ablation.verdict.model import RELEASE, ArmVerdict, SectionVerdict, Verdict
from ablation.verdict.rules import RuleResult

FILL_IN = "**FILL IN**"


@dataclass(frozen=True)
class Facts:
    """What the card is written from."""

    plan: Plan
    record: Mapping[str, Any]
    """What `ablation merge` wrote into `merge.json`."""
    verdict: Verdict | None
    no_verdict: str | None = None
    """Why there is none."""
    proofs: Sequence[str] = ()
    """What is beside the lock, in words."""
    journal: str | None = None
    """The run's journal and its head, in words."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Source of the training problems -> how many of it."""
    run_packages: Mapping[str, str] = field(default_factory=dict)
    """Versions that the run was made with, as its journal has them."""

    @property
    def subject(self) -> str:
        return f"{self.record['arm']}@{self.record['updates']}"

    @property
    def is_start(self) -> bool:
        return self.record["arm"] == START


def model_card(facts: Facts) -> str:
    """The whole README.md."""
    name = f"{facts.plan.name} {facts.subject}"
    parts = (
        _front_matter(facts),
        [f"# {escaped(name)}, merged", ""],
        _top(facts),
        _what(facts),
        _labels(facts),
        _merge_check(facts.record),
        _breakage(facts.record),
        _training(facts),
        _sampling(facts),
        _limits(facts),
        _versions(facts),
        _licence(facts.record),
    )
    return "\n".join(line for part in parts for line in part)


def release_line(facts: Facts) -> str:
    """What the verdict says of a release of this very checkpoint; the first line of the card."""
    if facts.is_start:
        return "Release: this is the starting adapter, merged. It is no arm of the study, and no label speaks of it."
    if facts.verdict is None:
        return f"Release: NO VERDICT ({facts.no_verdict})."
    verdict, plan = facts.verdict, facts.plan
    section = verdict.sections.get("release")
    if plan.verdict.release is None or section is None:
        return f"Release: the plan has no rule for a release. The study's label is {verdict.shown(verdict.label)}."
    own = _of_subject(section, facts)
    if own is None:
        others = ", ".join(f"{one.subject}: {verdict.shown_section(one)}" for one in _all(section) if one.subject) or "none was"
        return f"Release: NOT JUDGED for {facts.subject} of {facts.record['family']} ({others})."
    label = verdict.shown_section(own)
    if own.label == RELEASE:
        return f"Release: {label}."
    return f"Release: {label}. The plan's rules do not allow a release of this model."


def _front_matter(facts: Facts) -> list[str]:
    import yaml

    values: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    at = facts.plan.model.base.at
    if at.startswith("hub:"):
        values |= {"base_model": at.removeprefix("hub:").partition("@")[0], "base_model_relation": "finetune"}
    head = yaml.safe_dump(values, sort_keys=False, allow_unicode=False).splitlines()
    return ["---", *head, "# license: FILL IN before you publish: see the end of this card", "---", ""]


def _top(facts: Facts) -> Iterator[str]:
    yield f"> **{escaped(release_line(facts))}**"
    for line in _warnings(facts):
        yield from (">", f"> **{escaped(line)}**")
    yield from (
        ">",
        "> This is a draft that a program wrote from data. What it does not know is marked FILL IN. Claim nothing about",
    )
    yield from ("> the model that the labels below do not say.", "")


def _warnings(facts: Facts) -> Iterator[str]:
    training = facts.record["check"].get("training")
    if training is not None and not training["kept"]:
        share = "not known" if training["ratio"] is None else f"{100 * training['ratio']:.0f}%"
        yield (
            "What the updates of this run changed is hardly above what merging changed: the merged model's distance from the "
            f"adapter is {share} of the adapter's distance from the starting adapter. The labels are the adapter's."
        )
    if facts.verdict is not None and facts.verdict.missing:
        yield f"The run is not whole: {facts.verdict.missing[0].what}."


def _what(facts: Facts) -> Iterator[str]:
    record, plan = facts.record, facts.plan
    base, adapter, lora = record["base"], record["adapter"], record["lora"]
    yield from ("## What it is", "")
    if not facts.is_start:
        said = escaped(dict(arm_sentences(plan))[record["arm"]])
        yield f"- **Arm** {code(record['arm'])}, family {code(record['family'])}, after {record['updates']} updates: {said}"
    how = "as the plan was locked with" if base["locked"] else "not in the lock, which has the revision alone"
    yield f"- **Base** {code(base['at'])}, SHA-256 {code(base['sha256'])} ({how})"
    shape = f"rank {plan.model.lora.rank}, alpha {plan.model.lora.alpha}"
    yield f"- **Adapter**: {shape}, SHA-256 of its file {code(adapter['sha256'])}"
    if adapter["checkpoint_sha256"]:
        yield f"- **Checkpoint** as the run's journal has it, SHA-256 of its marker {code(adapter['checkpoint_sha256'])}"
    yield f"- **Starting adapter** {code(record['start_adapter']['at'])}, SHA-256 {code(record['start_adapter']['sha256'])}"
    kinds = ", ".join(f"{name} {count}" for name, count in lora["kinds"].items())
    yield (
        f"- **Merge**: all {lora['used']} LoRA pairs ({escaped(kinds)}), the sum in float32 and rounded once to the base's own "
        f"type ({', '.join(record['stored_dtype'])}). {_tied(record)}"
    )
    yield f"- **Plan** {code(record['plan']['name'])}, digest {code(record['plan']['digest'])}"
    yield f"- **Lock** SHA-256 {code(record['plan']['lock_sha256'])}"
    for line in facts.proofs or ("no proof of the lock was looked at",):
        yield f"  - {escaped(line)}"
    yield f"- **Journal**: {escaped(facts.journal or 'nothing has run')}"
    yield ""


def _tied(record: Mapping[str, Any]) -> str:
    if record["weights"]["untied"]:
        return "The base ties its output layer to the input embedding; here the output layer has a matrix of its own."
    return "Everything else is the base's, byte for byte."


def _labels(facts: Facts) -> Iterator[str]:
    yield from ("## Labels", "")
    verdict, plan = facts.verdict, facts.plan
    yield from (f"The question of the study: *{escaped(plan.question)}*", "")
    if verdict is None:
        yield from (f"There is no verdict: {escaped(str(facts.no_verdict))}.", "")
        return
    yield f"- **Replication** (of the study, not of this checkpoint): **{escaped(verdict.shown(verdict.label))}**"
    yield from (f"  - {escaped(f'{reason.code}: {reason.text}')}" for reason in verdict.reasons)
    damage = [one for one in verdict.arms if one.arm == facts.record["arm"]]
    own_update = facts.record["updates"] == plan.training.updates
    if not facts.is_start and not own_update:
        yield (
            f"- **Damage**: the readout that is judged is of update {plan.training.updates}; no damage label speaks of "
            f"{escaped(facts.subject)}."
        )
    for one in damage if own_update and not facts.is_start else []:
        same = " (this checkpoint)" if one.family == facts.record["family"] else " (another training run of the arm)"
        yield f"- **Damage**, {escaped(one.name)}{same}: **{escaped(verdict.shown_arm(one))}**"
    sections = [] if facts.is_start else list(_sections(verdict, facts))
    for name, one in sections:
        yield f"- **{TITLES[name]}**, {escaped(str(one.subject))}: **{escaped(verdict.shown_section(one))}**"
        if one.deviation:
            yield f"  - DEVIATION: {escaped(one.deviation)}"
        yield from (f"  - {escaped(f'{reason.code}: {reason.text}')}" for reason in (*one.wrong, *one.reasons))
        yield from (f"  - missing: {escaped(gap.what)}" for gap in one.missing)
    if not facts.is_start and not sections:
        yield f"- No set of phase 2 was judged for {escaped(facts.subject)}."
    yield from (f"- {escaped(line)}" for line in verdict.beside())
    outside = external_sentence(plan)
    yield from ([f"- {escaped(outside)}"] if outside is not None else [])
    yield ""
    yield from _rules(verdict, damage if own_update and not facts.is_start else [], sections)


def _rules(verdict: Verdict, damage: Sequence[ArmVerdict], sections: Sequence[tuple[str, SectionVerdict]]) -> Iterator[str]:
    groups = [(f"damage, {one.name}", verdict.shown_arm(one), one.rules, ("fired", "not fired")) for one in damage]
    groups += [(TITLES[name].lower(), verdict.shown_section(one), one.rules, ("held", "failed")) for name, one in sections]
    rows = [(title, label, rule, words) for title, label, rules, words in groups for rule in rules]
    if not rows:
        return
    yield from ("| label | rule | number | limit | result | in words |", "|---|---|---:|---:|---|---|")
    for title, label, rule, words in rows:
        cells = (f"{title}: {label}", rule.rule.name, shown_number(rule), f"{rule.rule.op} {number(rule.rule.limit)}")
        yield f"| {' | '.join(map(escaped, (*cells, _result(rule, words), rule.words)))} |"
    yield ""


def _result(rule: RuleResult, words: tuple[str, str]) -> str:
    if rule.holds is None:
        return f"undecided: {rule.reason}"
    return words[0] if rule.holds else words[1]


def _all(section: SectionVerdict) -> list[SectionVerdict]:
    return [section, *section.others]


def _of_subject(section: SectionVerdict, facts: Facts) -> SectionVerdict | None:
    """The section's verdict on this very checkpoint: subjects are of the family that is evaluated."""
    from ablation.plan.phase2 import evaluation_family

    if facts.record["family"] != evaluation_family(facts.plan):
        return None
    return next((one for one in _all(section) if one.subject == facts.subject and (one.compared or one.rules)), None)


def _sections(verdict: Verdict, facts: Facts) -> Iterator[tuple[str, SectionVerdict]]:
    for name, section in verdict.sections.items():
        own = _of_subject(section, facts)
        if own is not None:
            yield name, own


def _merge_check(record: Mapping[str, Any]) -> Iterator[str]:
    check, texts, engines = record["check"], record["texts"], record["engines"]
    yield from ("## Merge check", "")
    yield (
        f"Raw log-probabilities of the same {texts['tokens']} tokens in {texts['count']} texts of the run "
        f"({code(texts['origin'])}, seed {texts['seed']}), in {escaped(record['dtype'])}. The merged folder was loaded from disk."
    )
    yield from ("", "| | mean absolute difference (nats) | 99th percentile |", "|---|---:|---:|")
    rows = [
        ("merged against base plus adapter", check["merged_vs_adapter"]),
        ("base plus adapter against base: the fine-tune's effect", check["adapter_vs_base"]),
        ("merged against base", check["merged_vs_base"]),
    ]
    if "adapter_vs_start" in check:
        rows.append(("base plus adapter against base plus starting adapter: the effect of this run", check["adapter_vs_start"]))
    if "adapter_vs_sampler" in check:
        rows.append(("base plus adapter here against what was stored when it sampled these texts", check["adapter_vs_sampler"]))
    if "why" not in engines:
        rows.append((f"base in vLLM {engines['vllm']} against base in transformers", engines["base_vs_base"]))
        rows.append((f"merged in vLLM {engines['vllm']} against adapter in transformers", engines["merged_vs_adapter"]))
    yield from (f"| {escaped(name)} | {_nats(one['mean_absolute'])} | {_nats(one['p99_absolute'])} |" for name, one in rows)
    share = "not defined" if check["ratio"] is None else f"{check['ratio']:.3g}"
    yield from ("", f"The first is {share} of the second; it has to be under {check['share']:g}.")
    if "why" in engines:
        yield f"The base's own difference across engines was not measured: {escaped(engines['why'])}."
    yield from (
        "",
        "| module | pairs | weights unchanged by the merge | rounding error / size of the change |",
        "|---|---:|---:|---:|",
    )
    for name, one in (*record["weights"]["kinds"].items(), ("all", record["weights"]["all"])):
        lost = "none" if one["rounding_over_delta"] is None else f"{one['rounding_over_delta']:.3f}"
        yield f"| {escaped(name)} | {one['pairs']} | {100 * one['unchanged_share']:.1f}% | {lost} |"
    yield ""


def _nats(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"


def _breakage(record: Mapping[str, Any]) -> Iterator[str]:
    found = record["breakage"]
    looked = found["looked"]
    yield from ("## Breakage check", "")
    yield (
        f"{looked['samples']} rollouts of each of {len(looked['prompts'])} prompts, at most {looked['max_tokens']} tokens. "
        "It looks for broken files; it is no evaluation."
    )
    yield from ("", "| check | merged | adapter | base | result |", "|---|---:|---:|---:|---|")
    for one in found["checks"].values():
        counts = [one["own"], *(one["references"].get(who) for who in ("adapter", "base"))]
        cells = " | ".join(f"{count['holds']} of {count['of']}" if count and count["of"] else "-" for count in counts)
        yield f"| {escaped(one['words'])} | {cells} | {escaped(one['result'])} |"
    if looked["without_tools"]:
        yield from ("", f"No tool was asked for: {escaped(looked['without_tools'])}.")
    yield ""


def _training(facts: Facts) -> Iterator[str]:
    plan, problems = facts.plan, facts.plan.problems.training
    yield from ("## Training data", "")
    digest = f", SHA-256 {code(problems.sha256)}" if problems.sha256 else ""
    count = sum(facts.sources.values())
    yield f"- Problems of the run: {code(problems.at)}{digest}: {count} problems, {len(plan.cells)} cells of problem and effort"
    for name, of in facts.sources.items():
        yield f"  - {code(name)}: {of} problems"
    yield f"- What the base was trained on: {FILL_IN}"
    yield f"- What the starting adapter was trained on: {FILL_IN}"
    yield ""


def _sampling(facts: Facts) -> Iterator[str]:
    values = ", ".join(f"{name} {value}" for name, value in facts.plan.sampling.model_dump(mode="json").items())
    yield from ("## Sampling", "", f"What the labels rest on was sampled with: {escaped(values)}.")
    if "generation_config.json" in facts.record["copied"]:
        yield "`generation_config.json` is the base's own. The study did not read it; whoever loads this folder may."
    else:
        yield "The base has no `generation_config.json`, and neither has this folder."
    yield ""


def _limits(facts: Facts) -> Iterator[str]:
    yield from ("## Limits", "")
    if facts.verdict is not None and not facts.is_start:
        yield f"- {escaped(facts.verdict.unit_of_claim)}"
    yield "- The labels are of the adapter. The merged weights were compared with it by the check above, and not evaluated again."
    yield "- Nothing is known here of quantised versions, other languages, images or uses that no set of the plan covers."
    yield from (f"- Intended use, and what it must not be used for: {FILL_IN}", "")


def _versions(facts: Facts) -> Iterator[str]:
    yield from ("## Versions", "")
    made = facts.record["environment"]
    packages = ", ".join(f"{name} {version}" for name, version in made["packages"].items())
    yield f"- Merged and checked with Python {escaped(made['python'])}: {escaped(packages)}"
    if facts.run_packages:
        then = ", ".join(f"{name} {version}" for name, version in facts.run_packages.items())
        yield f"- The run was made with: {escaped(then)}"
    yield ""


def _licence(record: Mapping[str, Any]) -> Iterator[str]:
    there = [name for name in record["copied"] if name.upper().startswith(("LICENSE", "LICENCE", "NOTICE", "COPYING"))]
    copied = f" These files of the base were copied: {', '.join(code(name) for name in there)}." if there else ""
    yield from (
        "## Licence",
        "",
        f"{FILL_IN}: which licence this model has is yours to say, as far as the base's allows.{copied}",
        "",
    )
