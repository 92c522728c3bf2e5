"""What a plan states and what it leaves open, item by item, in the spirit of the CONSORT statement for trials.

Every item is worked out from the plan. `left open` is no fault of the plan: the plan language has no place for some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from ablation.plan.cost import update_sizes
from ablation.plan.locate import resources_of
from ablation.plan.model import Plan
from ablation.plan.phase2 import evaluation_sets, guard_set
from ablation.plan.rules import OPERATORS, Rule, StopRule
from ablation.plan.runs import FIRST_STABLE_ARM, families_of, perhaps_again, planned_runs
from ablation.plan.words import number
from ablation.report.loop_words import strong_words

STATED, OPEN = "stated", "left open"


@dataclass(frozen=True)
class Item:
    """One line of the checklist."""

    part: str
    """Heading that it stands under."""
    topic: str
    state: str
    """STATED or OPEN."""
    says: str
    """What the plan says, or what it does not."""
    why: str
    """One sentence: why it matters."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def checklist(plan: Plan) -> list[Item]:
    """Every item, in the order of a report: design, problems, arms, outcomes, size, blinding, analysis, access."""
    return [item for part, items in _PARTS.items() for item in items(plan, _Part(part))]


def by_part(items: Iterable[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """(heading, items as JSON under it), in order."""
    return [(part, list(own)) for part, own in groupby(items, key=lambda item: item["part"])]


@dataclass(frozen=True)
class _Part:
    name: str

    def __call__(self, topic: str, stated: bool, says: str, why: str) -> Item:
        return Item(self.name, topic, STATED if stated else OPEN, says, why)


def _design(plan: Plan, item: _Part) -> Iterator[Item]:
    replication, runs = plan.verdict.replication, planned_runs(plan)
    runs += [(replication.family, FIRST_STABLE_ARM)] if perhaps_again(plan) else []
    again = [f"{sum(of == family for of, _ in runs)} again in {family}" for family in families_of(runs)[1:]]
    over_seeds = [name for name, claim in plan.verdict.claims.items() if claim.method == "welch"]
    yield item(
        "training seeds per arm",
        bool(over_seeds),
        f"One run of an arm in a family: {', '.join([f'{len(plan.arms)} arms in {plan.main_family}', *again])}."
        + (f" Claims over training seeds: {', '.join(over_seeds)}." if over_seeds else ""),
        "A single run can be good or bad by luck of its training, so a label speaks of these checkpoints, not of a recipe.",
    )
    yield item(
        "replication",
        True,
        f"{replication.control} and the first stable arm again, new seeds, the same {len(plan.cells)} cells.",
        "A contrast that chance made once is unlikely to come out again; other problems would test more than other seeds do.",
    )
    others = [name for name in plan.arms if name != replication.control]
    yield item(
        "which arm is carried on",
        bool(others),
        f"The first stable one in this order: {', '.join(others)}." if others else "There is no arm beside the control.",
        "Picking the best-looking arm afterwards would be a choice that no label accounts for.",
    )


def _problems(plan: Plan, item: _Part) -> Iterator[Item]:
    yield item(
        "how the training problems were chosen",
        False,
        "The plan names their file, not how they got into it.",
        "Problems that were picked for how the start does on them drift back to normal by themselves.",
    )
    for name, title, why in (
        ("held_out", "held-out problems", "Without other problems nobody can tell a better model from a memorised list."),
        ("never_used", "never-used problems", "Problems that were looked at once are not new: each look tunes a study to them."),
    ):
        section = getattr(plan.verdict, name)
        if section is None:
            yield item(title, False, "The plan has no such stage.", why)
            continue
        problems = section.problems
        named = problems is not None and problems.owed is None
        which = "named by digest" if named else "owed" if problems is not None else "not named"
        yield item(title, named, f"{section.rollouts} rollouts, rules: {len(section.rules)}; the problems are {which}.", why)
    owed = [name for name, resource in resources_of(plan).items() if resource.owed is not None]
    yield item(
        "files at hand",
        not owed,
        f"Owed: {', '.join(owed)}." if owed else "No file is owed.",
        "A file that is filled in later is not part of what was promised.",
    )


def _arms(plan: Plan, item: _Part) -> Iterator[Item]:
    control = plan.verdict.replication.control
    flat = {name: arm.model_dump(exclude={"note"}) for name, arm in plan.arms.items()}
    steps, jumps = [], []
    for name in plan.arms:
        if name == control:
            continue
        near = [other for other in flat if other != name and _changes(flat[name], flat[other]) == 1]
        if near:
            steps.append(f"{name} from {near[0]}")
        else:
            jumps.append(name)
    yield item(
        "one change at a time",
        not jumps,
        f"In more than one setting from every other arm: {', '.join(jumps)}."
        if jumps
        else f"Each arm is one setting away from another: {', '.join(steps)}."
        if steps
        else "There is no arm beside the control.",
        "If two settings change at once, the result cannot be put down to either.",
    )
    outside = {name: arm.external for name, arm in plan.arms.items() if arm.external is not None}
    if outside:
        shown = "; ".join(f"{name}: {one.words} ({len(one.files)} of its files by digest)" for name, one in outside.items())
        yield item(
            "what trains the arm",
            False,
            f"A command outside this program trains {shown}.",
            "The program samples, grades and judges such an arm, but cannot check how it was trained.",
        )
    s0 = plan.training.s0
    yield item(
        "s0, the scale of all weights",
        s0 != "sweep",
        f"The mean thinking length that the sweep of {plan.main_family} will have." if s0 == "sweep" else f"{number(s0)} tokens.",
        "It scales every gradient: a number that is known only after the first rollouts was not promised before them.",
    )
    bonus = max(plan.training.reward_of(arm).length_bonus for arm in plan.arms.values())
    yield item(
        "what length is rewarded against",
        bonus == 0,
        "No length term." if bonus == 0 else "Each cell's mean clean length in the family's own sweep, still to be sampled.",
        "The reference is measured on a few rollouts a cell, so its noise is in the reward, and differs between families.",
    )
    yield item(
        "how the learning rate was chosen",
        False,
        f"{number(plan.training.learning_rate)}; the plan has no place for the reason.",
        "A rate at which the control is known to break decides half of the label before the study begins.",
    )


def _changes(one: dict[str, Any], other: dict[str, Any]) -> int:
    return sum(value != other[name] for name, value in one.items())


_HARMS = {
    "answers": {"clean", "correct", "tokens_per_correct"},
    "unfinished rollouts": {"truncated", "truncated_or_looping"},
    "loops": {"looping", "truncated_or_looping"},
    "log-probability": {"logprob", "top20_entropy", "top20_mass"},
}
_ALARMS = {
    "logprob": {"logprob"},
    "truncated or looping rollouts": {"truncated_or_looping_share"},
    "numbers that are not finite": {"nonfinite"},
}


def _unwatched(wanted: dict[str, set[str]], rules: Sequence[Rule | StopRule]) -> str:
    """What none of `rules` measures."""
    used = {rule.measure for rule in rules}
    return ", ".join(what for what, measures in wanted.items() if used.isdisjoint(measures))


def _outcomes(plan: Plan, item: _Part) -> Iterator[Item]:
    unseen = _unwatched(_HARMS, plan.verdict.damage)
    yield item(
        "what damage covers",
        not unseen,
        f"No damage rule looks at {unseen}." if unseen else f"{', '.join(_HARMS)}: each has a rule.",
        "Harm that no rule looks at counts as stable.",
    )
    unseen = _unwatched(_ALARMS, plan.stop_rules)
    yield item(
        "stop rules",
        not unseen,
        f"None looks at {unseen}." if unseen else f"{', '.join(_ALARMS)}: each has a rule.",
        "A run that has collapsed otherwise goes on, and where to end it becomes a choice made while watching.",
    )
    held_out = plan.verdict.held_out
    better = [rule.name for rule in held_out.rules if _equal_fails(rule)] if held_out is not None else []
    yield item(
        "whether anything must improve",
        bool(better),
        f"Held-out: {', '.join(better)}. REPLICATED alone asks an arm only not to be damaged."
        if better
        else "No rule asks for it: REPLICATED asks an arm only not to be damaged.",
        "An arm that learned nothing at all is stable, too.",
    )
    loops = plan.loops
    strong = f"{loops.repeated_share:.0%} of the {loops.gram}-token windows seen before"
    yield item(
        "what a loop is",
        True,
        f"A unit of p tokens repeated max({loops.min_repeats}, 2 + {number(loops.short_unit)} / p^2) times over at least "
        f"{loops.min_tokens} tokens, or {strong if loops.novelty is None else strong_words(loops)}.",
        "Loops are counted by a definition with free numbers: moving them moves clean and looping counts.",
    )


def _equal_fails(rule: Rule) -> bool:
    """Whether a model that equals the start in every figure fails the rule."""
    return rule.compare != "value" and not OPERATORS[rule.op](0 if rule.compare == "change" else 1, rule.limit)


def _size(plan: Plan, item: _Part) -> Iterator[Item]:
    yield item(
        "why so many rollouts",
        False,
        f"{plan.sweep_rollouts} a sweep from {len(plan.cells)} cells; no calculation in the plan.",
        "A study that is too small misses real damage, and says stable.",
    )
    yield item(
        "why these limits",
        False,
        f"{len(plan.verdict.damage)} damage limits without a reason; the section on luck says how often chance meets them.",
        "A limit that chance meets often, or that damage seldom meets, decides the label instead of the arms.",
    )


def _blinding(plan: Plan, item: _Part) -> Iterator[Item]:
    read = None if plan.verdict.held_out is None else plan.verdict.held_out.blinded_read
    yield item(
        "who reads, and how they are blinded",
        False,
        "Nobody reads answers."
        if read is None
        else f"{read.passes} of {read.pairs} pairs must pass, by {read.raters} rater{'s' * (read.raters > 1)}"
        f"{', a judge model in both orders' * read.both_orders}; who they are is open.",
        "Counts miss a right answer with a wrong reason, and a reader who knows which model wrote it sees what they expect.",
    )


def _analysis(plan: Plan, item: _Part) -> Iterator[Item]:
    replication, verdict = plan.verdict.replication, plan.verdict
    yield item(
        "missing rollouts",
        True,
        "No label is given while one is missing or cannot be graded (INCOMPLETE, UNDECIDED).",
        "Leaving out what failed would favour the arm whose failures are lost.",
    )
    yield item(
        "runs that a stop rule ended",
        True,
        f"Without a readout: if {replication.control} stopped, NOT_REPLICATED; another arm is passed over.",
        "Counting an ended run as damaged, or leaving it out, could each turn the label.",
    )
    looks = plan.training.updates
    checks = len(plan.extension.checks) if plan.extension is not None else 0
    later = f", and at {checks} check{'s' * (checks > 1)} of the extension" if checks else ""
    watched = f"Stop rules after each of {looks} updates; d" if plan.stop_rules else "D"
    yield item(
        "interim looks",
        True,
        f"{watched}amage rules once, at the readout{later}.",
        "The more often a study is looked at, the more often chance ends it at a moment that suits somebody.",
    )
    count, arms = len(verdict.damage), len(plan.arms) - 1
    yield item(
        "many tests",
        count <= 1 and arms <= 1,
        f"Damage rules: {count}, and one is enough. Arms that may be stable: {arms}. Limits are not corrected for that."
        + _claims_in_words(plan),
        "Every further rule or arm is one more chance for luck; the section on luck counts all of them together.",
    )
    rules = [*verdict.damage]
    for section in (verdict.held_out, verdict.never_used):
        rules += section.rules if section is not None else []
    if verdict.release is not None:
        rules += [*verdict.release.guards, *(verdict.release.main.rules if verdict.release.main is not None else [])]
    tested = list(dict.fromkeys(rule.name for rule in rules if rule.compare.endswith(("_low", "_high"))))
    yield item(
        "intervals",
        True,
        f"{plan.statistics.level:.0%}, over cells, {plan.statistics.resamples:,} resamples; "
        + (f"they decide {', '.join(tested)}." if tested else "no rule uses them."),
        "A rule on a bare count or ratio ignores how uncertain it is.",
    )
    efforts = [effort for effort, ids in plan.problems.cells.items() if ids]
    if len(efforts) > 1:
        yield item(
            "subgroups",
            False,
            f"No rule looks at one effort ({', '.join(efforts)}) or one source alone.",
            "Whatever is said about one of them later was found by looking, and needs a study of its own.",
        )
    sizes = update_sizes(len(plan.cells), plan.training.updates)
    span = " or ".join(map(str, sorted(set(sizes))))
    yield item(
        "what an update is made of",
        True,
        f"{span} cells, dealt by the family's seed, none twice.",
        "If cells were dealt by hand, the order could be chosen that helps an arm.",
    )
    if verdict.release is not None:
        sets = evaluation_sets(plan)
        lost = [one.name for one in verdict.release.guards if guard_set(one).replace("_", "-") not in sets]
        yield item(
            "what release guards are measured on",
            not lost,
            f"The plan names no set for {', '.join(lost)}."
            if lost
            else f"Guards: {len(verdict.release.guards)}, on {', '.join(dict.fromkeys(map(guard_set, verdict.release.guards)))}.",
            "A guard on few tasks passes by chance.",
        )
        yield item(
            "what a win on the main set is",
            verdict.release.main is not None,
            f"Rules: {len(verdict.release.main.rules)}, with a table."
            if verdict.release.main is not None
            else "The plan names no main set, so no release can come out of it.",
            "A win that is defined after the numbers are known is found on most sets.",
        )


def _claims_in_words(plan: Plan) -> str:
    """How the plan's claims are corrected for their number; nothing without claims."""
    claims = plan.verdict.claims
    if not claims:
        return ""
    plain = [name for name, one in claims.items() if one.correction == "none" and len(one.subjects) > 1]
    holm = [name for name in claims if name not in plain]
    said = [f"by Holm or with one arm each: {', '.join(holm)}"] if holm else []
    said += [f"not corrected over their arms: {', '.join(plain)}"] if plain else []
    return f" Claims: {len(claims)} ({'; '.join(said)}), not corrected for each other."


def _access(plan: Plan, item: _Part) -> Iterator[Item]:
    yield item(
        "where rollouts and verdict will be published",
        False,
        "The plan has no place for it.",
        "A study that is shown only if it came out well makes every shown label too good.",
    )


_PARTS: dict[str, Callable[[Plan, _Part], Iterator[Item]]] = {
    "Design": _design,
    "Problems": _problems,
    "Arms": _arms,
    "Outcomes": _outcomes,
    "Size": _size,
    "Blinding": _blinding,
    "Analysis": _analysis,
    "Access": _access,
}
