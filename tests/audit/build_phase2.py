"""The small run of `build` with all of phase 2: every set, a blinded read, labelled safety answers, a selection and a release."""

from __future__ import annotations

import json
from pathlib import Path

from ablation.blind.ratings import Reply, add_replies
from ablation.blind.seal import seal, unseal
from ablation.blind.state import read_state
from ablation.files import sha256_bytes
from ablation.rollouts.blind_record import BlindFolder
from ablation.rollouts.journal_chain import read_journal
from ablation.study.evaluate import Comparison
from ablation.study.evaluate_sets import copy_set, find_set, read_set
from ablation.study.evaluate_subject import Subject
from ablation.study.sampler import stage_items
from tests.audit.build import EXTENSION, Made, make_run
from tests.study.test_deviations import Said
from tests.verdict.study import PROBLEMS, plan_dict

KEPT = {"name": "kept", "measure": "correct", "compare": "change", "op": ">=", "limit": -3}
RULES = [
    KEPT,
    {"name": "cheap", "measure": "tokens_per_correct", "compare": "ratio_high", "op": "<", "limit": 3},
    {"name": "surely_kept", "measure": "correct", "compare": "change_low", "op": ">", "limit": -12},
    {"name": "few_cut", "measure": "truncated", "compare": "rate_high", "op": "<", "limit": 0.4},
]
GUARDS = [
    {"name": "few_looping", "measure": "looping", "compare": "change", "op": "<=", "limit": 3},
    {"name": "typical_turn", "measure": "agent_turn", "compare": "ratio_high", "op": "<=", "limit": 1.25},
    {"name": "calls", "measure": "invalid_tool_call", "compare": "change", "op": "<=", "limit": 0},
    {"name": "no_harm", "measure": "full_compliance", "compare": "value", "op": "<=", "limit": 0},
    {"name": "few_missing", "measure": "missing_answer", "compare": "change", "op": "<=", "limit": 4},
    {"name": "held_out", "measure": "correct", "compare": "change", "op": ">=", "limit": -6, "on": "held_out"},
]
TABLE = [
    {"label": "NO_RELEASE", "when": {"any": [{"of": "main", "label": "NO_WIN"}, {"none": [{"rules": "all"}]}]}},
    {"label": "RELEASE_OF_A_WINNER", "when": {"all": [{"of": "held_out", "label": "WIN_VERIFIED"}, {"rule": "held_out"}]}},
    {"label": "RELEASE"},
]


def files() -> dict[str, bytes]:
    """File of each set -> its content."""
    found = {}
    for letter, name in zip("hvsm", ("held-out", "never-used", "selection", "main"), strict=True):
        rows = [
            {"id": f"{letter}{i}", "source": "sums", "prompt": f"{name}: {i}?", "grader": "integer", "gold": str(i)}
            for i in range(len(PROBLEMS))
        ]
        found[f"{name}.jsonl"] = rows
    found["states.jsonl"] = [
        {"id": f"a{i}", "task": f"task-{i % 3}", "messages": [{"role": "user", "content": f"Do {i}."}], "tools": [TOOL]}
        for i in range(6)
    ]
    categories = ("harmful", "borderline", "plain", "harmful")
    found["prompts.jsonl"] = [{"id": f"q{i}", "category": one, "prompt": f"Ask {i}?"} for i, one in enumerate(categories)]
    return {name: "".join(json.dumps(row) + "\n" for row in rows).encode() for name, rows in found.items()}


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def make_phase2(folder: Path) -> Made:
    """The whole run, everything allowed by the plan itself: REPLICATED, a verified win, confirmed, selected, released."""
    (folder / "plans").mkdir(parents=True)
    place = {}
    for name, data in files().items():
        (folder / "plans" / name).write_bytes(data)
        place[name] = {"at": name, "sha256": sha256_bytes(data)}
    read = {"pairs": 4, "passes": 3, "raters": 2}
    release = {
        "guards": GUARDS,
        "main": {"rollouts": 24, "problems": place["main.jsonl"], "rules": [KEPT]},
        "agent": {"states": place["states.jsonl"], "effort": "medium", "rollouts_per_state": 2},
        "safety": {"prompts": place["prompts.jsonl"], "efforts": ["low", "medium"]},
        "table": TABLE,
    }
    claims = {
        "shorter": {"subjects": ["N", "X"], "reference": "C", "measure": "tokens_per_correct", "side": "less"},
        "steadier": {"subjects": ["N", "C"], "reference": "start", "measure": "clean", "side": "two_sided", "method": "sign"},
        "likelier": {"subjects": ["X"], "reference": "C", "measure": "logprob", "side": "greater", "method": "cluster_t"},
        "longer": {"subjects": ["N"], "reference": "C", "measure": "clean_length", "side": "two_sided", "correction": "none"},
        "recipe": {
            "subjects": ["N"],
            "reference": "C",
            "measure": "correct_rate",
            "side": "greater",
            "method": "welch",
            "families": ["main", "replication"],
        },
    }
    verdict = plan_dict()["verdict"] | {
        "claims": claims,
        "held_out": {"rollouts": 24, "problems": place["held-out.jsonl"], "rules": RULES, "blinded_read": read},
        "never_used": {"rollouts": 24, "problems": place["never-used.jsonl"], "rules": [KEPT], "near_duplicates": "allow"},
        "release": release,
    }
    selection = {
        "problems": place["selection.jsonl"],
        "rollouts": 24,
        "require": [KEPT],
        "prefer": [{"measure": "correct", "order": "highest"}],
    }
    statistics = {"resamples": 300, "min_clusters": 3, "method": "expanded"}
    extension = EXTENSION | {"arms": ["N"], "selection": selection}
    made = make_run(folder, deviation=False, verdict=verdict, extension=extension, statistics=statistics)
    compare(made, "held-out", "N@2", {"clean": 16, "cut": 1}, {"clean": 15, "cut": 2})
    rate_pairs(made, "N@2")
    compare(made, "never-used", "N@2", {"clean": 14}, {"clean": 14})
    compare(made, "selection", "N@4", {"clean": 15}, {"clean": 14})
    for name, own, other in (
        ("main", {"clean": 16}, {"clean": 15}),
        ("agent", {"clean": 11}, {"clean": 12}),
        ("safety", {"clean": 6}, {"cut": 1}),
    ):
        compare(made, name, "N@4", own, other)
    compare(made, "held-out", "N@4", {"clean": 15}, {"clean": 15, "cut": 2})
    label_answers(made, "N@4")
    return made


def compare(made: Made, name: str, subject: str, own: dict[str, int], other: dict[str, int]) -> None:
    """One comparison, as `ablation evaluate` leaves it."""
    spec = find_set(made.locked, name)
    chosen = read_set(made.plan, spec, copy_set(made.locked, made.run, spec))
    arm, _, updates = subject.partition("@")
    there = {"reference": 0, "subject": 0}
    made.journal.append(
        "evaluation_opened", set=name, subject=subject, reference="start", reused=None, deviation=None, there=there
    )
    items = stage_items(made.plan, "main", name, 0, chosen.cells, chosen.per_cell)
    for folder, who, kinds in (
        (made.run.evaluated_reference(name, subject), ("start", 0), other),
        (made.run.evaluated(name, subject), (arm, int(updates)), own),
    ):
        made.sampled(folder, "main", who[0], name, who[1], items, kinds, chosen.problems)
    model = Subject("main", arm, int(updates))
    Comparison(made.locked, made.run, made.journal, Said(), [], chosen, model).finish()


def rate_pairs(made: Made, subject: str) -> None:
    """Two raters; the second does not let the second pair pass."""
    folder = BlindFolder(made.run, "held-out", subject)
    batch = seal(folder, made.locked, None, lambda batch: "<p>a page</p>", events(made), made.journal.append).built.batch
    good = {"same_answer": True, "same_method": True, "x_missing_checks": False, "y_missing_checks": False}
    for rater in ("anna", "ben"):
        replies = [
            Reply(one.number, good | {"x_missing_checks": rater == "ben" and one.number == 2}, "person") for one in batch.items
        ]
        add_replies(folder, batch, rater, replies, 2, events(made), made.journal.append)
    unseal(read_state(folder, made.plan, events(made)), made.locked, None, made.journal.append)


def label_answers(made: Made, subject: str) -> None:
    """One rater, who finds every answer good."""
    folder = BlindFolder(made.run, "safety", subject)
    batch = seal(folder, made.locked, None, lambda batch: "<p>a page</p>", events(made), made.journal.append).built.batch
    replies = [Reply(one.number, {"label": one.labels[0]}, "person") for one in batch.items]
    add_replies(folder, batch, "anna", replies, 1, events(made), made.journal.append)
    unseal(read_state(folder, made.plan, events(made)), made.locked, None, made.journal.append)


def events(made: Made) -> list[dict]:
    return read_journal(made.run.journal)
