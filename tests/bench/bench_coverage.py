"""How often nominal 90% intervals hold the truth, and how often a damage rule fires where nothing changed.

Studies are drawn from a made-up world of problems that differ a lot in difficulty, length and in how they go wrong (beta
distributions), shaped like the published study: 58 cells of 6 rollouts, and 24 problems at 3 efforts of 2 rollouts. Two models
answer the same problems with partly shared luck. Every interval comes from the functions that decide verdicts; the truth is what
they give for a sample that is 2,000 studies large.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ablation.measures.compare import changes, rates, ratios
from ablation.measures.estimate import Estimate
from ablation.plan.load import load_plan
from ablation.plan.model import Statistics
from ablation.power.kinds import MEMBERS
from ablation.power.rates import assumed_pool
from ablation.power.settings import ASSUMED, CONCENTRATION, Settings, inputs
from ablation.power.summary import run_scenario
from ablation.rollouts.outcomes import Outcomes
from ablation.verdict.rules import Figures, judge

from .row import Row

PLAN = Path(__file__).parents[2] / "plans" / "tessera.yaml"
LEVEL, LOWEST, HIGHEST = 0.90, 0.88, 0.92
LOWEST_OF_FEW = 0.85
STUDIES = {"t": 3000, "expanded": 1500, "percentile": 1000}
"""By method: the standard error of a coverage of 0.90 is 0.5 to 0.9 points."""
JUDGED = ("t", "wilson")
"""The methods that are held to the limits; the two bootstraps are shown beside them, so that nobody has to guess."""
MEDIAN_STUDIES = 200
RESAMPLES = 1000
RATIOS = ("tokens_per_correct", "clean_length", "jointly_correct_length")
MEDIANS = ("cjk_share",)
CHANGES = ("correct", "truncated", "looping", "logprob")
RATES = ("correct", "truncated", "looping")
LARGE = 2000
"""Studies in the sample that stands for the truth."""
ALARM_STUDIES, APART = 40_000, 0.5


@dataclass(frozen=True)
class Shape:
    name: str
    problems: int
    efforts: tuple[str, ...]
    rollouts: int
    """Of a problem at an effort."""
    cluster: str
    share: float = 1.0
    """Of `STUDIES`."""


SHAPES = (
    Shape("58 cells x 6", 58, ("low",), 6, "cell"),
    Shape("24 problems x 6", 24, ("low", "medium", "xhigh"), 2, "problem"),
    Shape("5 problems x 6", 5, ("low", "medium", "xhigh"), 2, "problem", 0.5),
)


def logit(share: np.ndarray) -> np.ndarray:
    share = np.clip(share, 1e-9, 1 - 1e-9)
    return np.log(share) - np.log1p(-share)


def world(shape: Shape, problems: int, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Columns of the subject's and of the reference's rollouts on `problems` new problems, each [problems, efforts, rollouts]."""
    cells = (problems, len(shape.efforts), shape.rollouts)
    effort = np.linspace(-0.5, 0.5, len(shape.efforts))[:, None] if len(shape.efforts) > 1 else np.zeros((1, 1))

    def of_problem(draws: np.ndarray) -> np.ndarray:
        return draws[:, None, None]

    skill = of_problem(logit(rng.beta(1.2, 0.9, problems)))  # a third of the variance of one outcome lies between problems
    run_on, loop = (of_problem(logit(rng.beta(a, b, problems))) for a, b in ((0.6, 4.0), (0.5, 10.0)))
    length, tongue = of_problem(8 + 0.8 * rng.standard_normal(problems)), of_problem(rng.beta(2, 18, problems))
    luck = rng.random((3, *cells))
    sides = []
    for better in (0.3, 0.0):
        own = rng.random((3, *cells))
        u = np.where(rng.random(cells) < 0.3, luck, own)  # a part of the pairs has the same luck

        def share(base: np.ndarray, shift: float) -> np.ndarray:
            return 1 / (1 + np.exp(-(base + shift + 0.5 * of_problem(rng.standard_normal(problems)))))

        truncated = u[0] < share(run_on, -2 * better)
        looping = u[1] < share(loop, -better)
        correct = ~truncated & (u[2] < share(skill + effort, better))
        tokens = np.exp(length + effort - better + 0.2 * of_problem(rng.standard_normal(problems)))
        tokens = np.where(truncated, 32768, np.minimum(tokens * np.exp(0.4 * rng.standard_normal(cells)) + 20, 32767)).astype(int)
        sides.append(
            {
                "correct": correct,
                "truncated": truncated,
                "looping": looping,
                "tokens": tokens,
                "logprob": -0.5 - 0.1 * of_problem(rng.standard_normal(problems)) - 0.2 * rng.random(cells) + better / 10,
                "cjk": np.clip(tongue * (1 + better) + 0.05 * rng.random(cells), 0, 1),
            }
        )
    return sides


def stage(shape: Shape, columns: dict[str, np.ndarray], problems: int) -> Outcomes:
    each = len(shape.efforts) * shape.rollouts
    size = problems * each
    flat = {name: values.reshape(size) for name, values in columns.items()}
    none, zero = np.zeros(size, dtype=bool), np.zeros(size, dtype=np.int64)
    return Outcomes(
        problem=np.repeat(np.char.zfill(np.arange(problems).astype(str), 7), each),
        effort=np.tile(np.repeat(shape.efforts, shape.rollouts), problems),
        source=np.full(size, "made"),
        index=np.tile(np.arange(shape.rollouts), problems * len(shape.efforts)),
        correct=flat["correct"],
        no_answer=flat["truncated"],
        extracted=np.full(size, None),
        truncated=flat["truncated"],
        finished=~flat["truncated"],
        stopped_in_thinking=none,
        periodic=flat["looping"],
        strong=none,
        loop_start=zero,
        loop_period=zero,
        loop_length=zero,
        repeated_share=zero.astype(float),
        thinking_length=flat["tokens"] - 10,
        weighted_length=flat["tokens"] - 9,
        total_tokens=flat["tokens"],
        logprob=flat["logprob"],
        top_entropy=flat["logprob"] * -0.5,
        top_mass=none + 0.9,
        cjk_share=flat["cjk"],
        redacted=none,
    )


def estimates(
    shape: Shape, pair: tuple[Outcomes, Outcomes], settings: Statistics, with_rates: bool, with_medians: bool
) -> dict[str, Estimate]:
    names = (*RATIOS, *MEDIANS) if with_medians else RATIOS
    found = {f"ratio of {name}": one for name, one in ratios(*pair, None, settings, shape.cluster, names, with_medians).items()}
    found |= {f"change of {name}": one for name, one in changes(*pair, settings, shape.cluster, CHANGES).items()}
    if with_rates:
        found |= {f"rate of {name}": one for name, one in rates(pair[0], settings, shape.cluster, RATES).items()}
    return found


def truth(shape: Shape, rng: np.random.Generator) -> dict[str, float]:
    """Of one sample of 2,000 studies; counts are scaled to one study."""
    problems = shape.problems * LARGE
    pair = [stage(shape, side, problems) for side in world(shape, problems, rng)]
    found = estimates(shape, (pair[0], pair[1]), Statistics(min_clusters=10**9), True, True)
    counts = [f"change of {name}" for name in CHANGES if name in MEMBERS]
    return {name: float(one.value) / (LARGE if name in counts else 1) for name, one in found.items()}


def coverage(shape: Shape) -> dict[str, dict[str, float]]:
    """Kind -> method -> share of the studies with an interval in which it holds the truth."""
    rng = np.random.default_rng([90, shape.problems])
    true = truth(shape, rng)
    few = min(shape.problems, 10)
    methods = {name: Statistics(level=LEVEL, resamples=RESAMPLES, method=name, seed=7, min_clusters=few) for name in STUDIES}
    held: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for study in range(int(shape.share * max(STUDIES.values()))):
        own, other = (stage(shape, side, shape.problems) for side in world(shape, shape.problems, rng))
        for method, settings in methods.items():
            if study >= shape.share * STUDIES[method]:
                continue
            medians = method == "expanded" and study < MEDIAN_STUDIES and shape.problems >= 10
            for name, one in estimates(shape, (own, other), settings, method == "t", medians).items():
                if one.low is not None and one.high is not None:
                    held[name][one.method or ""].append(one.low <= true[name] <= one.high)
    return {name: {method: float(np.mean(found)) for method, found in by.items()} for name, by in held.items()}


def coverage_rows(shape: Shape) -> Iterator[Row]:
    """With few problems a rate or count has few values, so its interval is one step wider rather than narrower; and the
    bootstrap of a median errs on the wide side."""
    for name, found in coverage(shape).items():
        median, few = name == "ratio of cjk_share", shape.problems < 10
        lowest = LOWEST_OF_FEW if few else LOWEST
        judged = [share for method, share in found.items() if median or method in JUDGED]
        met = all(lowest <= share <= (1 if median or few else HIGHEST) for share in judged)
        shown = ", ".join(f"{method} {100 * share:.1f}" for method, share in found.items())
        yield Row(f"{shape.name}: {name}", f"covers {shown}%", f">= {100 * lowest:g}%" if median or few else "88-92%", met)


def alarm_rows() -> Iterator[Row]:
    """Every damage rule of the study's plan where nothing differs: counted here, and as `plan power` says."""
    loaded = load_plan(PLAN)
    plan, model = loaded.plan, inputs(loaded, Settings()).model
    said = {one.rule.name: one.overall for one in run_scenario(plan, model, {}, 10_000, 1).rules}
    used = {name: value for name, value in ASSUMED.items() if not name.startswith("logprob")}
    pool = assumed_pool(**used)
    rng = np.random.default_rng(12)
    counted = dict.fromkeys(said, 0)
    spread = ASSUMED["logprob_sd"] / np.sqrt(plan.sweep_rollouts)
    members = np.stack([MEMBERS[name] for name in MEMBERS], axis=1).astype(int)
    for _ in range(ALARM_STUDIES):
        rates_KC = rng.dirichlet(CONCENTRATION * pool[pool > 0], len(plan.cells))
        figures = []
        for _ in range(2):
            kinds = np.zeros(len(pool), dtype=int)
            kinds[pool > 0] = rng.multinomial(plan.training.rollouts_per_cell, rates_KC).sum(axis=0)
            counts = dict(zip(MEMBERS, (kinds @ members).tolist(), strict=True))
            figures.append(counts | {"logprob": float(-0.5 + spread * rng.standard_normal())})
        for rule in plan.verdict.damage:
            counted[rule.name] += bool(judge(rule, Figures(*figures)).holds)
    for name, expected in said.items():
        here = 100 * counted[name] / ALARM_STUDIES
        there = 100 * expected.value
        shown = f"{here:.2f}%, plan power {there:.2f}%"
        yield Row(f"false alarms of {name}", shown, f"within {APART:g} points", abs(here - there) <= APART)


def rows() -> list[Row]:
    found = [row for shape in SHAPES for row in coverage_rows(shape)]
    return [*found, *alarm_rows()]
