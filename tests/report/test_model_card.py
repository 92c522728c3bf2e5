"""The draft of a model card: what is in it is in the data, and no text of others is markup in it."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from ablation.chain import Head
from ablation.plan.deviations import Deviation
from ablation.plan.load import load_plan
from ablation.report.merge_words import merge_lines
from ablation.report.model_card import Facts, model_card, release_line
from ablation.verdict.model import Reason, SectionVerdict
from ablation.verdict.reported import judge_reported
from tests.study.mini import ROOT

DIFFERENCE = {"mean_absolute": 0.0123, "p99_absolute": 0.5, "tokens": 100}
COUNT = {"holds": 11, "of": 12}
KIND = {"pairs": 7, "weights": 1000, "unchanged_share": 0.125, "rounding_over_delta": 0.0625}
RECORD = {
    "plan": {"name": "tessera", "digest": "d" * 64, "lock_sha256": "e" * 64},
    "family": "main",
    "arm": "N",
    "updates": 5,
    "base": {"at": "hub:Org/Base@" + "1" * 40, "sha256": "b" * 64, "locked": True},
    "adapter": {"sha256": "a" * 64, "checkpoint_sha256": "c" * 64},
    "start_adapter": {"at": "start", "sha256": "f" * 64},
    "journal": None,
    "dtype": "bfloat16",
    "stored_dtype": ["BF16"],
    "lora": {"pairs": 401, "used": 401, "scale": 1.0, "kinds": {"lm_head": 1, "q_proj": 400}},
    "weights": {"untied": False, "all": KIND, "kinds": {"q_proj": KIND}},
    "texts": {"origin": "main/N/readout", "count": 24, "tokens": 9000, "longest": 4096, "seed": 7, "rollouts": []},
    "copied": ["LICENSE", "config.json", "generation_config.json"],
    "environment": {"python": "3.11.7", "packages": {"torch": "2.13.0"}, "git": None, "accelerator": None},
    "check": {
        "merged_vs_adapter": DIFFERENCE,
        "adapter_vs_base": {"mean_absolute": 0.33, "p99_absolute": 2.0, "tokens": 100},
        "merged_vs_base": DIFFERENCE,
        "ratio": 0.0373,
        "share": 0.25,
        "reason": None,
        "passed": True,
        "adapter_vs_start": {"mean_absolute": 0.02, "p99_absolute": 0.1, "tokens": 100},
        "training": {"ratio": 0.615, "kept": False},
    },
    "breakage": {
        "checks": {
            "tool_call": {
                "words": "a tool call",
                "own": {"holds": 0, "of": 0},
                "references": {"adapter": None, "base": {"holds": 0, "of": 0}},
                "result": "not asked",
            },
            "no_loop": {
                "words": "no repetition loop",
                "own": COUNT,
                "references": {"adapter": COUNT, "base": COUNT},
                "result": "pass",
            },
        },
        "looked": {"prompts": ["p1@low"], "samples": 2, "max_tokens": 100, "without_tools": None},
        "failed": [],
        "passed": True,
    },
    "engines": {"vllm": "0.32.0", "base_vs_base": DIFFERENCE, "merged_vs_adapter": DIFFERENCE, "merged_vs_base": DIFFERENCE},
}
RECORD["engines"]["breakage"] = RECORD["breakage"]


@pytest.fixture(scope="module")
def study():
    """(plan, verdict) of the published study's own figures: `NOT_REPLICATED`, and no release by the plan's rules."""
    loaded = load_plan(ROOT / "plans" / "tessera.yaml")
    found = judge_reported(ROOT / "tests" / "verdict" / "measures" / "study.yaml", loaded)
    # as a run's own verdict names them
    sections = {name: replace(one, subject="N@5") for name, one in found.sections.items() if name != "release"}
    return loaded.plan, replace(found, sections=sections)


def facts(study, **changes) -> Facts:
    plan, verdict = study
    record = copy.deepcopy(RECORD)
    for name in ("arm", "updates", "family", "engines"):
        if name in changes:
            record[name] = changes.pop(name)
    found = Facts(plan, record, verdict, proofs=["git: proven: commit 123"], journal="9 events", sources={"aime": 30, "code": 28})
    return replace(found, **changes)


def table(card: str, heading: str) -> list[list[str]]:
    part = card.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in rows]


def test_the_numbers_of_the_merge(study):
    card = model_card(facts(study))
    rows = {row[0]: row[1:] for row in table(card, "Merge check")}
    assert rows["merged against base plus adapter"] == ["0.0123", "0.5"]
    assert rows["base plus adapter against base: the fine-tune's effect"] == ["0.33", "2"]
    assert rows["base in vLLM 0.32.0 against base in transformers"] == ["0.0123", "0.5"]
    assert rows["q\\_proj"] == ["7", "12.5%", "0.062"]
    assert "The first is 0.0373 of the second; it has to be under 0.25." in card
    assert "all 401 LoRA pairs (lm\\_head 1, q\\_proj 400)" in card and "24 texts" in card and "seed 7" in card
    for digest in "abcdef":
        assert digest * 64 in card
    assert "git: proven: commit 123" in card and "9 events" in card
    assert "`aime`: 30 problems" in card and "58 problems" in card


def test_what_only_a_person_knows_is_marked(study):
    card = model_card(facts(study))
    assert card.count("**FILL IN**") == 4
    licence = card.split("## Licence\n")[1]
    assert licence.strip().startswith("**FILL IN**") and "`LICENSE`" in licence
    head = card.split("---\n")[1]
    assert "base_model: Qwen/Qwen3.8-27B\nbase_model_relation: finetune\n" in head and not re.search(
        r"^license:", head, re.MULTILINE
    )


def test_every_label_of_the_checkpoint_has_its_rules_and_its_deviations(study):
    plan, verdict = study
    one = Deviation(1, "2026-11-01T00:00:00+00:00", "the first family again", "results", ("held-out",), "a <b>", None, "0" * 64)
    verdict = replace(verdict, deviations=[one])
    card = model_card(facts((plan, verdict)))
    for label in ("NOT\\_REPLICATED", "STABLE", "WIN\\_UNVERIFIED", "NOT\\_CONFIRMED"):
        found = [line for line in card.splitlines() if label in line]
        assert found and all("(deviation 1" in line for line in found), label
    assert "Deviation 1 (2026-11-01T00:00:00+00:00, a &lt;b&gt;; results seen; opens held-out): the first family again" in card
    rules = {row[1]: row for row in table(card, "Labels")}
    arm = next(one for one in verdict.arms if (one.family, one.arm) == ("main", "N"))
    assert {one.rule.name.replace("_", "\\_") for one in arm.rules} <= set(rules)
    logprob = next(row for row in table(card, "Labels") if row[1] == "logprob\\_lost" and "main/N" in row[0])
    assert logprob[3] == "&lt;= -0.15" and logprob[4] == "not fired"


def test_the_label_of_a_release_is_the_first_thing(study):
    plan, verdict = study
    own = SectionVerdict("NO_RELEASE", rules=verdict.arms[0].rules, subject="N@5", reasons=[Reason("GUARD_FAILED", "a guard")])
    with_it = replace(verdict, sections=verdict.sections | {"release": own})
    card = model_card(facts((plan, with_it)))
    body = card.split("---\n", 2)[2]
    assert body.split("\n")[3] == "> **Release: NO\\_RELEASE. The plan's rules do not allow a release of this model.**"
    allowed = replace(own, label="RELEASE")
    assert release_line(facts((plan, replace(with_it, sections={"release": allowed})))) == "Release: RELEASE."
    assert release_line(facts((plan, with_it), arm="X")) == "Release: NOT JUDGED for X@5 of main (N@5: NO_RELEASE)."
    assert "NOT JUDGED for N@5 of replication" in release_line(facts((plan, with_it), family="replication"))


def test_a_checkpoint_that_no_label_speaks_of(study):
    card = model_card(facts(study, updates=3))
    assert "no damage label speaks of N&#64;3" in card
    assert "**Damage**, main/N" not in card and "WIN\\_UNVERIFIED" not in card
    assert "No set of phase 2 was judged for N&#64;3." in card


def test_the_start_has_no_label(study):
    card = model_card(facts(study, arm="start", updates=0))
    assert "no label speaks of it" in card
    assert "**Damage**" not in card and "WIN\\_" not in card and "Held-out" not in card


def test_no_verdict_says_why(study):
    card = model_card(facts(study, verdict=None, no_verdict="a grader failed"))
    assert "> **Release: NO VERDICT (a grader failed).**" in card and "There is no verdict: a grader failed." in card
    assert "STABLE" not in card


def test_updates_that_rounding_may_have_taken_are_said_at_the_top(study):
    top = model_card(facts(study)).split("## What it is")[0]
    assert "is 62% of the adapter's distance from the starting adapter" in top


def test_engines_that_were_not_asked(study):
    card = model_card(facts(study, engines={"why": "vLLM is not installed here"}))
    assert "The base's own difference across engines was not measured: vLLM is not installed here." in card


PLAIN = {*("h1", "h2", "p", "ul", "li", "em", "strong", "code", "blockquote"), *("table", "thead", "tbody", "tr", "th", "td")}
HOSTILE = (
    "x](http://evil.example) <script>alert(1)</script> **bold** |cell| `code` ![i](http://evil.example/i.png)\n# head\n\x1b[31m"
)


def test_texts_of_others_are_no_markup(study):
    plan, verdict = study
    record_texts = {"name": HOSTILE}
    hostile_plan = plan.model_copy(update={"question": HOSTILE})
    one = Deviation(1, "2026-11-01T00:00:00+00:00", HOSTILE, "results", (), HOSTILE, Head(1, "0" * 64), "0" * 64)
    found = facts((hostile_plan, replace(verdict, deviations=[one], reasons=[Reason("X", HOSTILE)])))
    found.record["base"]["at"] = HOSTILE
    found.record["copied"] += [f"LICENSE {HOSTILE}"]
    found.record["plan"] |= record_texts
    found.record["environment"]["packages"][HOSTILE] = HOSTILE
    found.record["breakage"]["looked"]["without_tools"] = HOSTILE
    found.record["engines"] = {"why": HOSTILE}
    found = replace(found, proofs=[HOSTILE], journal=HOSTILE, sources={HOSTILE: 1}, run_packages={HOSTILE: HOSTILE})
    card = model_card(found)
    assert "\x1b" not in card and "\n# head" not in card
    html = MarkdownIt("commonmark").enable("table").render(card.split("---\n", 2)[2])
    assert set(re.findall(r"<([a-z0-9]+)", html)) <= PLAIN, set(re.findall(r"<([a-z0-9]+)", html)) - PLAIN
    assert "bold**" in html and "cell|" in html  # they are there, as text
    for row in table(card, "Labels")[1:]:
        assert len(row) == 6
    lines = list(merge_lines(found.record))
    assert any("not measured" in line for line in lines)


def test_what_the_terminal_shows():
    lines = "\n".join(merge_lines(json.loads(json.dumps(RECORD))))
    assert "401 of 401 LoRA pairs merged (lm_head 1, q_proj 400)" in lines
    assert re.search(r"merged against base plus adapter +0\.0123 +0\.5", lines)
    assert "the first is 0.0373 of the second; it has to be under 0.25" in lines
    assert "WARNING: the first is 0.61 of what this run's updates changed" in lines
    assert re.search(r"no repetition loop +11/12 +11/12 +11/12 +pass", lines)
    assert re.search(r"a tool call +- +- +- +not asked", lines)


def test_a_refused_merge_shows_what_there_is():
    refused = {name: RECORD[name] for name in ("lora", "weights", "texts", "check")}
    lines = list(merge_lines(refused))
    assert any("has to be under 0.25" in line for line in lines) and not any("breakage" in line for line in lines)
