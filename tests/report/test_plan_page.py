from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from ablation.plan.load import load_plan
from ablation.report.cost_words import duration
from ablation.report.plan_page import plan_page, plan_summary
from ablation.report.terminal import Page, plain_console
from tests.plan.conftest import TEXT, write_plan

PLANS = Path(__file__).parents[2] / "plans"
GOLDEN = Path(__file__).parent / "plan_page.txt"


def page(path: Path, width: int = 80) -> str:
    loaded = load_plan(path)
    out = io.StringIO()
    summary = plan_summary(loaded, {"state": "not locked", "detail": None})
    plain_console(file=out, width=width, color_system=None).print(Page(plan_page(loaded, summary)), end="")
    return out.getvalue()


def test_golden_page(tmp_path):
    """Kept in plan_page.txt; read every change to it before you keep it."""
    path = write_plan(tmp_path)
    text = page(path).replace(load_plan(path).digest, "0" * 64)  # it changes with the plan language
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_nothing_is_lost_or_cut_at_any_width(monkeypatch, tmp_path, width):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    text = page(PLANS / "tessera.yaml", width)
    assert max(map(len, text.split("\n"))) <= width
    assert "…" not in text
    packed = "".join(text.split())
    for part in (
        load_plan(PLANS / "tessera.yaml").digest if width >= 80 else "27001",
        "lost21ormorecleanrolloutsagainstthesweep",
        "hub:Qwen/Qwen3.8-27B@1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0" if width >= 140 else "hub:Qwen",
        "10of12pairspass",
        "182,452,224sampled",
        "5,568=696insweeps+2,436inupdates+2,436inreadouts",
        "1,740morerolloutsinupdatesandchecks,onlyafterREPLICATED",
        "thefirststableoneinplanorder,infamilymain",
        "6to15,fromthelastcheckpointanditsoptimizerstate",
        "afterupdates8,10and15:348rolloutsagainstthefamily'ssweep;therunpausesifoneofthedamagerulesholds",
        "whatissavedafterupdates10and15,ifitscheckfindsnodamage",
    ):
        assert part in packed


def test_checks_with_rules_of_their_own_show_them(tmp_path):
    own = "[{name: few_looping, measure: looping, compare: value, op: '>', limit: 9}]"
    path = write_plan(tmp_path, TEXT + f"extension: {{updates: 6, checks: [6], arms: [N, XK], damage: {own}}}\n")
    text = " ".join(page(path).split())
    for part in (
        "arm N, XK, in family main",
        "updates 6, from the last checkpoint",
        "after update 6: 348 rollouts against the family's sweep; the run pauses if one of its own rules holds",
        "Checks of the extension: the run pauses if any of these holds few_looping looping rollouts above 9",
    ):
        assert part in text
    assert "Extension" not in page(write_plan(tmp_path))


def test_the_hardware_and_its_rate_are_stated_and_move_the_estimate(tmp_path):
    loaded = load_plan(write_plan(tmp_path))
    state = {"state": "not locked", "detail": None}

    def estimates(loaded, flops=None):
        return plan_summary(loaded, state, flops)["cost"]["estimates"]

    [own] = estimates(loaded)
    # 1e6 parameters x (2 x 835,200 sampled + 4 x 348,000 trained tokens) = 3.0624e12 operations
    assert own == {"hardware": "1 CPU thread", "flops_per_second_assumed": 1e10, "seconds": pytest.approx(306.24)}
    [slow], [fast] = estimates(loaded, 1e9), estimates(loaded, 1e12)
    assert slow["hardware"] == "your hardware"
    assert slow["seconds"] == pytest.approx(1000 * fast["seconds"])
    cpu, gpu = estimates(load_plan(PLANS / "tessera.yaml"))
    assert (cpu["hardware"], gpu["hardware"]) == ("16 CPU threads", "one data-center GPU")
    assert cpu["seconds"] == pytest.approx(625 * gpu["seconds"])
    assert "about 4 years on 16 CPU threads at an assumed 1.6e11" in " ".join(page(PLANS / "tessera.yaml").split())


LIBRARY = """\
  C: {library: C}
  N: {library: N, note: mine}
  XK: {library: XK, kl: {beta: 0.1}}
  GRPO: {library: GRPO, learning_rate: 1e-5}
"""


def with_arms(arms: str, more: str = "") -> str:
    start, end = TEXT.index("  C: {weighting"), TEXT.index("families:")
    return (TEXT[:start] + arms + TEXT[end:]).replace("  updates: 5\n", f"  updates: 5\n{more}")


def test_an_arm_of_the_library_says_so_and_what_it_has_of_its_own(tmp_path):
    text = page(write_plan(tmp_path, with_arms(LIBRARY)))
    assert "  C     the library's C: the study's control\n" in text
    assert "  N     the library's N, with its own note: mine\n" in text
    assert "  XK    the library's XK, with its own kl: X, with a KL anchor toward the start\n" in text
    assert "the library's" not in page(write_plan(tmp_path))


def test_arms_with_many_differences_are_listed_and_not_squeezed(tmp_path):
    text = page(write_plan(tmp_path, with_arms(LIBRARY)))
    assert "  N     weighting rollout\n" in text
    assert "  XK    weighting rollout, truncated apart, kl.beta 0.1\n" in text
    words = " ".join(text.split())
    assert "GRPO weighting grpo, tokens response, scale std, learning_rate 1e-05, clip.low 0.2, clip.high 0.2, kl.beta" in words
    assert "C weighting token, tokens thinking, scale none" in words  # the control has every field in which another differs


def test_a_part_that_is_not_there_differs_from_one_at_its_defaults(tmp_path):
    arms = "  C: {weighting: token}\n  clipped: {weighting: token, clip: {}}\n  K: {weighting: token, kl: {beta: 1}}\n"
    differences = plan_summary(load_plan(write_plan(tmp_path, with_arms(arms))), {"state": "not locked"})["arms"]
    assert differences["clipped"] == {"clip.low": 0.2, "clip.high": 0.2}
    assert differences["K"] == {"kl.beta": 1.0}


def test_training_that_is_not_the_default_is_shown(tmp_path):
    more = "  optimizer: {name: adamw, weight_decay: 0.1, max_grad_norm: 1}\n  autocast: bfloat16\n"
    words = " ".join(page(write_plan(tmp_path, with_arms(LIBRARY, more))).split())
    assert "AdamW from empty moments, weight decay 0.1, gradients of norm 1 at most, s0 sweep, autocast bfloat16" in words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(5, "5 seconds"), (90, "1.5 minutes"), (7200, "2 hours"), (259_200, "3 days"), (126_144_000, "4 years")],
)
def test_duration(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("statistics", "words"),
    [
        (
            "{}",
            "90%, percentile bootstrap over clusters, 10,000 resamples; shares: of all rollouts, pooled, with a Wilson score "
            "interval; with fewer than 10 clusters none: a rule on its end is undecided",
        ),
        (
            "{level: 0.975, method: expanded, resamples: 500, min_clusters: 4, few_clusters: t, estimand: mean_of_clusters}",
            "97.5%, expanded percentile bootstrap over clusters, 500 resamples; shares: the mean over clusters of each one's "
            "share, with a Wilson score interval; with fewer than 4 clusters: t interval over clusters (jackknife)",
        ),
        (
            "{method: t, few_clusters: t}",
            "90%, t interval over clusters (jackknife); shares: of all rollouts, pooled, with a Wilson score interval",
        ),
    ],
)
def test_intervals_are_the_plan_s_own(tmp_path, statistics, words):
    path = write_plan(tmp_path, TEXT + f"statistics: {statistics}\n")
    assert f"intervals {words} clusters cells (a problem at one effort) " in " ".join(page(path).split())


def test_on_the_sets_of_phase_2_intervals_are_over_problems():
    words = " ".join(page(PLANS / "tessera.yaml").split())
    over = "on held-out, never-used, selection, main: problems; for agent turns: tasks"
    assert f"clusters cells (a problem at one effort); {over}" in words


def test_a_deviation_says_what_it_opens(tmp_path):
    loaded, out = load_plan(write_plan(tmp_path)), io.StringIO()
    one = {"number": 1, "reason": "X goes on", "time": "noon", "by": "ann", "seen": "results", "opens": ["held-out", "release"]}
    summary = plan_summary(loaded, {"state": "not locked", "detail": None}) | {"deviations": [one]}
    plain_console(file=out, width=120, color_system=None).print(Page(plan_page(loaded, summary)), end="")
    assert "1  X goes on (noon, ann; results seen; opens held-out, release)" in out.getvalue()


def test_money_by_the_plans_own_prices_by_hand(tmp_path):
    """Three arms and two of them again: 2 sweeps, 5 times updates and readout, so 12 x 348 rollouts of 200 tokens behind prompts
    that are taken as 512. XK is scored twice, in both families: 4 x 348 x 712."""
    own = "prices: {currency: EUR, device_hour: {h200: 2.5}, million_tokens: {prefill: 1.5, sample: 4.5}}\n"
    found = plan_summary(load_plan(write_plan(tmp_path, TEXT + own)), {"state": "not locked", "detail": None})["cost"]["money"]
    prefill, sample, train = 12 * 348 * 512 + 4 * 348 * 712, 12 * 348 * 200, 5 * 348 * 712
    assert (
        found["tokens"]
        == {"prefill": prefill, "sample": sample, "train": train}
        == {
            "prefill": 3_129_216,
            "sample": 835_200,
            "train": 1_238_880,
        }
    )
    # 3.129216 x 1.5 = 4.693824; 0.8352 x 4.5 = 3.7584
    assert found["runs"]["total"] == "8.452224" and found["runs"]["unpriced"] == ["train"] and found["later"] is None
    text = " ".join(page(tmp_path / "small.yaml").split())
    assert "at most 8.45 EUR, without train (no price) at a service that bills tokens" in text
    assert "prefill: 3,129,216 tokens / 1,000,000 x 1.5 EUR = 4.69 EUR" in text
    assert "train: 1,238,880 tokens, no price" in text
    assert "2.5 EUR for an hour of one h200" in text


def test_a_plan_with_hours_alone_says_nothing_of_tokens(tmp_path):
    text = page(write_plan(tmp_path, TEXT + "prices: {currency: EUR, device_hour: {cpu: 0.5}}\n"))
    assert "0.5 EUR for an hour of one cpu" in text and "bills tokens" not in text


def test_the_backends_that_a_plan_may_be_run_with_are_shown(tmp_path):
    text = " ".join(page(PLANS / "everywhere.yaml").split())
    assert "backends local, or vllm or tinker (`ablation run --policy`); each run has one of them" in text
    assert "backends" not in page(write_plan(tmp_path))
