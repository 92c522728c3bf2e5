from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.plan.load import PlanError, field_path, load_plan, parse_plan
from ablation.plan.weightings import WEIGHTINGS

PLANS = Path(__file__).parents[2] / "plans"
*FIRST_NAMES, LAST_NAME = (f"`{name}`" for name in WEIGHTINGS)
WEIGHTING_NAMES = f"{', '.join(FIRST_NAMES)} or {LAST_NAME}"


def problems(text: str) -> list[str]:
    """Messages for `text`, the file name cut off."""
    with pytest.raises(PlanError) as caught:
        parse_plan(Path("x.yaml"), text.encode())
    return [line.removeprefix("x.yaml:") for line in caught.value.lines()]


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def test_a_good_plan(plan_path):
    loaded = load_plan(plan_path)
    assert loaded.plan.training.learning_rate == 2e-5
    assert loaded.plan.sweep_rollouts == 348
    assert loaded.plan.cells[0] == ("p00", "low")
    assert list(loaded.plan.arms) == ["C", "N", "XK"]
    assert loaded.plan.sampling.top_k == 0
    assert loaded.bytes_sha256 == hashlib.sha256(plan_path.read_bytes()).hexdigest()


@pytest.mark.parametrize("form", ["2e-5", "2E-5", "2.0e-5", "0.00002", ".00002"])
def test_number_forms_are_the_same_plan(plan_path, plan_text, form):
    other = parse_plan(plan_path, plan_text.replace("2e-5", form).encode())
    assert other.digest == load_plan(plan_path).digest


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "learning_rate: 2e-5",
            'learning_rate: "2e-5"',
            'training.learning_rate: found the text "2e-5"; allowed: a number; remove the quotes',
        ),
        ("learning_rate: 2e-5", "learning_rate: \uff12e-5", "training.learning_rate: found the text \"\uff12e-5\"; allowed: a number; did you mean `2e-5`?"),
        ("learning_rate: 2e-5", "learning_rate: -1", "training.learning_rate: found the number -1; allowed: a number > 0"),
        ("learning_rate: 2e-5", "learning_rate: true", "training.learning_rate: found `true`; allowed: a number"),
        ("learning_rate: 2e-5", "learning_rate:", "training.learning_rate: found nothing (null); allowed: a number"),
        ("max_tokens: 200", "max_tokens: 2.5", "sampling.max_tokens: found the number 2.5; allowed: a whole number"),
        (
            "max_tokens: 200",
            "max_tokens: 2_00",
            'sampling.max_tokens: found the text "2_00"; allowed: a whole number; did you mean `200`?',
        ),
        ("max_tokens: 200", "max_tokens: [200]", "sampling.max_tokens: found a list; allowed: a whole number"),
        ("sampling: {max_tokens: 200}", "sampling: 200", "sampling: found the number 200; allowed: a mapping"),
        ("name: small", "name: 12", "name: found the number 12; allowed: text; put quotes around it"),
        ("name: small", "name: a/b", 'name: found the text "a/b"; allowed: a name of at most 40 letters, digits, `-` and `_`'),
        ("ablation: 1", "ablation: 2", "ablation: found the number 2; allowed: 1"),
        (
            "weighting: token",
            "weighting: tokens",
            f'arms.C.weighting: found the text "tokens"; allowed: {WEIGHTING_NAMES}; did you mean `token`?',
        ),
        ("weighting: token", "weighting: no", f'arms.C.weighting: found the text "no"; allowed: {WEIGHTING_NAMES}'),
        ("updates: 5", "udpates: 5", "training.udpates: unknown field; did you mean `updates`?"),
        ("updates: 5", "updates: 59", "training.updates: found 59 updates of 58 cells, so an update would have none"),
        (
            "rollouts_per_cell: 6",
            "rollouts_per_cell: 6\n  s0: swep",
            'training.s0: found the text "swep"; allowed: a number or `sweep`; did you mean `sweep`?',
        ),
        ("  N: {", "  C+: {", "arms.C+: found the name `C+`; allowed: a name of at most 40 letters, digits, `-` and `_`"),
        ("  N: {", "  start: {", "arms.start: `start` is the starting model's name and cannot be an arm's"),
        ("  N: {", "  c: {", "arms.c: `c` and `C` are one folder where names ignore case; rename one"),
        (
            "main: {",
            "Evaluations: {",
            "families.Evaluations: `Evaluations` is the run folder's place for comparisons; take another name",
        ),
        ("seed: 2}", "seed: 1}", "families.replication.seed: found 1, which is family `main`'s; each needs its own"),
        ("seed: 2}", "seed: -2}", "families.replication.seed: found the number -2; allowed: a number >= 0"),
        (
            "control: C",
            "control: c",
            "verdict.replication.control: there is no arm `c`; arms: C, N, XK; did you mean `C`?",
        ),
        ("control: C", "control: N", "arms.N: the control `N` must be listed first"),
        (
            "family: replication",
            "family: replicaton",
            "verdict.replication.family: there is no family `replicaton`; families: main, replication; did you mean `replication`?",
        ),
        (
            "family: replication",
            "family: main",
            "verdict.replication.family: `main` is the first family; the replication needs another one",
        ),
        (
            "measure: clean",
            "measure: claen",
            "verdict.damage[0].measure: `claen` is no measure; known: correct, clean, truncated, looping, truncated_or_looping, "
            "no_answer, periodic, strong, logprob, top20_entropy, top20_mass, cjk_share, tokens_per_correct, clean_length, "
            "total_tokens, correct_rate; did you mean `clean`?",
        ),
        ("limit: -21", "limit: -20.5", "verdict.damage[0].limit: found -20.5; `clean` is a count, so its limit is a whole number"),
        (
            "limit: -21",
            "limit: -349",
            "verdict.damage[0].limit: found -349; with 348 rollouts the number is -348 to 348, so the rule never holds",
        ),
        (
            "limit: -21",
            "limit: 348",
            "verdict.damage[0].limit: found 348; with 348 rollouts the number is -348 to 348, so the rule always holds",
        ),
        ("name: logprob_lost", "name: clean_lost", "verdict.damage[1].name: two rules are called `clean_lost`"),
        ("xhigh: [p00, p01", "xhigh: [p00, p00", "problems.cells.xhigh[1]: cell `p00@xhigh` is listed twice"),
        ("low: [p00", "low: [0", "problems.cells.low[0]: found the number 0; allowed: text; put quotes around it"),
        (
            "at: base.bin",
            "at: hub:a/b@main",
            "model.base.at: found `hub:a/b@main`; allowed: `hub:ORG/NAME@REVISION` with a commit hash of 40 hex digits",
        ),
        ("at: base.bin", "at: package:../x", "model.base.at: found `package:../x`; allowed: `package:PATH`, without `.` and `..`"),
        (
            "truncated: apart, kl: {beta: 0.05}",
            "kl: {beta: 0.05, damp_only: true}",
            "arms.XK.kl.damp_only: needs `advantages: positive` (it damps positive weights)",
        ),
        (
            "weighting: rollout}",
            "weighting: rollout, truncation_penalty: 0.5}",
            "arms.N.truncation_penalty: goes with `truncated: penalize`; with `keep` it would do nothing",
        ),
        (
            "weighting: rollout}",
            "weighting: rollout, truncated: penalize}",
            "arms.N.truncated: `penalize` needs `truncation_penalty`",
        ),
        (
            "weighting: rollout}",
            "weighting: rollout, truncated: mask, finish_push: 0.1}",
            "arms.N.finish_push: weighs truncated rollouts; `truncated: mask` leaves them without weight",
        ),
        (
            "weighting: rollout}",
            "weighting: rollout, advantages: positive, finish_push: 0.1}",
            "arms.N.finish_push: puts negative weight on truncated rollouts; `advantages: positive` forbids it",
        ),
        (
            "weighting: rollout}",
            "weighting: rollout, baseline: none, scale: std}",
            "arms.N.scale: `std` needs a baseline: it is the spread around it",
        ),
        (
            "weighting: rollout}",
            "weighting: rollout, baseline: none, advantages: positive}",
            "arms.N.advantages: without a baseline no advantage is negative, so `positive` would do nothing",
        ),
        ("weighting: rollout}", "weighting: rollout, clip: {low: 1.5}}", "arms.N.clip.low: found the number 1.5; allowed: a number <= 1"),
        ("weighting: rollout}", "weighting: rollout, clip: {lo: 0.1}}", "arms.N.clip.lo: unknown field; did you mean `low`?"),
        (
            "weighting: rollout}",
            "weighting: rollout, optimizer: {beta1: 1}}",
            "arms.N.optimizer.beta1: found the number 1; allowed: a number < 1",
        ),
        (
            "weighting: rollout}",
            "library: Dr_GPRO}",
            'arms.N.library: found the text "Dr_GPRO"; the library has C, N, X, XP, XK, P, GRPO, DAPO, Dr_GRPO, RLOO; '
            "did you mean `Dr_GRPO`?",
        ),
        ("weighting: rollout}", "libary: N}", "arms.N.libary: unknown field; did you mean `library`?"),
        ("weighting: rollout}", "library: [N]}", "arms.N.library: found a list; the library has C, N, X, XP, XK, P, GRPO, DAPO, Dr_GRPO, RLOO"),
        ("weighting: rollout}", "library:}", "arms.N.library: found nothing (null); the library has C, N, X, XP, XK, P, GRPO, DAPO, Dr_GRPO, RLOO"),
        ("weighting: rollout}", "library: 3}", "arms.N.library: found the number 3; the library has C, N, X, XP, XK, P, GRPO, DAPO, Dr_GRPO, RLOO"),
        ("weighting: rollout}", "library: XK, kl: {beta: 0}}", "arms.N.kl.beta: found the number 0; allowed: a number > 0"),
        ("weighting: rollout}", "library: XK, kl: {beta: 1e16}}", "arms.N.kl.beta: found the number 1e+16; allowed: a number <= 1e+15"),
        ("weighting: rollout}", "library: XP, finish_push: 1e300}", "arms.N.finish_push: found the number 1e+300; allowed: a number <= 1e+15"),
        ("learning_rate: 2e-5", "learning_rate: 1e38", "training.learning_rate: found the number 1e+38; allowed: a number <= 1e+15"),
        (
            "weighting: rollout}",
            "weighting: rollout, optimizer: {eps: 1e-46}}",
            "arms.N.optimizer.eps: found the number 1e-46; allowed: a number >= 1e-30",
        ),
        (
            "weighting: rollout}",
            "library: DAPO, finish_push: 0.1}",
            "arms.N.finish_push: weighs truncated rollouts; `truncated: mask` leaves them without weight",
        ),
        ("weighting: rollout}", "library: P, advantages: all}", "arms.N.kl.damp_only: needs `advantages: positive` (it damps positive weights)"),
        ("stop_rules:", "loops: {gram: 24, novelty: 0.15}\nstop_rules:", "loops.gram: is not read beside `novelty: 0.15`"),
        ("stop_rules:", "loops: {repeated_share: 0.5, novelty: 0.2}\nstop_rules:", "loops.repeated_share: is not read beside `novelty: 0.2`"),
        ("  parameters: 1000000\n", "", "model.parameters: is missing; it needs `parameters: ...` (Parameters of the base model: "
         "what `plan show` computes time and memory from)"),
    ],
)  # fmt: skip
def test_one_fault_one_message(plan_text, old, new, expected):
    assert plan_text.count(old) >= 1
    found = problems(plan_text.replace(old, new, 1))
    assert [line.split(": ", 1)[1] for line in found] == [expected]


def test_what_stands_beside_library_replaces_the_librarys_own():
    text = (PLANS / "quickstart.yaml").read_text()
    text = text.replace("N: {weighting: rollout}", "N: {library: XK, kl: {beta: 0.1}, learning_rate: 1e-5}")
    text = text.replace("X: {weighting: rollout, truncated: apart}", "X: {library: GRPO, clip: null}")
    arms = parse_plan(PLANS / "quickstart.yaml", text.encode()).plan.arms
    assert (arms["N"].truncated, arms["N"].kl.beta, arms["N"].learning_rate) == ("apart", 0.1, 1e-5)
    assert arms["X"].clip is None and arms["X"].kl.unit == "advantage"


def test_an_arm_by_name_and_the_same_one_written_out_are_one_plan(plan_path, plan_text):
    by_name = plan_text.replace("weighting: rollout}", "library: N, note: a}", 1)
    written = plan_text.replace("weighting: rollout}", "weighting: rollout, note: a}", 1)
    assert parse_plan(plan_path, by_name.encode()).digest == parse_plan(plan_path, written.encode()).digest


def test_the_place_of_a_combination_that_only_arises_after_the_override(plan_text):
    """`finish_push` is the library's, so the arm itself is pointed at."""
    text = plan_text.replace("weighting: rollout}", "library: XP, truncated: mask}", 1)
    [line] = problems(text)
    assert line.startswith(f"{line_of(text, 'library: XP')}:3: arms.N.finish_push: weighs truncated rollouts")


def test_place_is_that_of_the_value_or_of_the_key(plan_text):
    text = plan_text.replace("learning_rate: 2e-5", "learning_rate: fast", 1)
    assert problems(text)[0].startswith(f"{line_of(text, 'fast')}:18: ")
    text = plan_text.replace("updates: 5", "udpates: 5")
    assert problems(text)[0].startswith(f"{line_of(text, 'udpates')}:3: ")


def test_all_problems_at_once(plan_text):
    text = (
        plan_text.replace("learning_rate: 2e-5", 'learning_rate: "2e-5"')
        .replace("weighting: token", "weighing: token")
        .replace("seed: 1}", "seed: TODO}")
        .replace("name: small", "name: small\nname: big")
        .replace("limit: -21", "limit: abc")
    )
    lines = [int(line.split(":")[0]) for line in problems(text)]
    wanted = ["name: big", 'learning_rate: "2e-5"', "weighing", "TODO", "abc"]
    assert lines == [line_of(text, part) for part in wanted]


def test_placeholders_are_refused_with_their_line(plan_text):
    text = plan_text.replace("question: Does it work?", "question: TODO").replace("max_tokens: 200", "max_tokens: TODO")
    assert problems(text) == [
        "3:11: question: still the placeholder `TODO`; fill it in",
        "13:24: sampling.max_tokens: still the placeholder `TODO`; fill it in",
    ]


def test_resource_needs_a_digest_unless_it_is_pinned_elsewhere(plan_text):
    start = plan_text.index("{at: base.bin")
    line = plan_text[start : plan_text.index("\n", start)]
    revision = "1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0"
    for good in ("{at: x, owed: not here}", "{at: 'recipe:smollm2/base'}", f"{{at: 'hub:a/b@{revision}'}}"):
        parse_plan(Path("x.yaml"), plan_text.replace(line, good).encode())
    assert "needs `sha256` (or `owed: WHY`" in problems(plan_text.replace(line, "{at: x}"))[0]
    assert "keep one of them" in problems(plan_text.replace(line, line.replace("}", ", owed: x}")))[0]
    assert "64 lower-case hex digits" in problems(plan_text.replace(line, "{at: x, sha256: ABC}"))[0]


def test_missing_file_names_its_neighbours(plan_path):
    with pytest.raises(UsageError) as caught:
        load_plan(plan_path.with_name("smal.yaml"))
    assert "there is no such plan" in caught.value.message
    assert "small.yaml" in caught.value.hint


def test_a_folder_is_no_plan(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        load_plan(tmp_path)


def test_the_study_plan_has_the_study_numbers():
    """Every number here is from the published study."""
    plan = load_plan(PLANS / "tessera.yaml").plan
    assert (len(plan.cells), plan.sweep_rollouts, plan.training.updates) == (58, 348, 5)
    assert list(plan.arms) == ["C", "N", "X", "XP", "XK"]
    assert (plan.model.lora.rank, plan.model.lora.alpha, plan.training.s0, plan.training.learning_rate) == (32, 32, 4790, 2e-5)
    assert (plan.sampling.temperature, plan.sampling.top_p, plan.sampling.top_k, plan.sampling.max_tokens) == (1, 0.95, 20, 32768)
    assert [(rule.measure, rule.op, rule.limit) for rule in plan.verdict.damage] == [
        ("clean", "<=", -21),
        ("truncated_or_looping", ">=", 20),
        ("looping", ">=", 12),
        ("logprob", "<=", -0.15),
    ]
    held_out, never_used = plan.verdict.held_out, plan.verdict.never_used
    assert held_out.rollouts == never_used.rollouts == 24 * 3 * 2
    assert [rule.limit for rule in held_out.rules] == [-8, 8, 54, 1, 0.5]
    assert (held_out.blinded_read.pairs, held_out.blinded_read.passes) == (12, 10)
    assert [rule.limit for rule in never_used.rules] == [103, 9, 24, 0.95]
    assert [rule.limit for rule in plan.verdict.release.guards][:7] == [
        1.25,
        0,
        1,
        2,
        4,
        0,
        0,
    ]  # turns, and the safety smoke's six
    assert plan.verdict.release.main.rollouts == 118 * 2 and plan.extension.selection.rollouts == 54


def test_field_path():
    assert field_path(("verdict", "damage", 0, "limit")) == "verdict.damage[0].limit"
    assert field_path(()) == ""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "max_tokens: 200",
            f"max_tokens: {10**20}",
            "sampling.max_tokens: found the number 1" + "0" * 20 + "; allowed: a number <= 1e+07",
        ),
        (
            "rollouts_per_cell: 6",
            "rollouts_per_cell: 1",
            "training.rollouts_per_cell: found the number 1; allowed: a number >= 2",
        ),
        ("rollouts_per_cell: 6", f"rollouts_per_cell: {10**30}", "; allowed: a number <= 1e+15"),
        (
            "rollouts_per_cell: 6",
            "rollouts_per_cell: 17242",
            "training.rollouts_per_cell: makes 1,000,036 rollouts in one sweep; at most 1,000,000 can be judged together",
        ),
        (
            "updates: 5",
            "s0: 1e308\n  updates: 5",
            "training.s0: found the number 1e+308; it is a length in tokens, at most 10,000,000",
        ),
        ("stop_rules:", f"loops: {{gram: {10**25}}}\nstop_rules:", "loops.gram: found the number 1"),
        ("stop_rules:", f"statistics: {{resamples: {10**12}}}\nstop_rules:", "statistics.resamples: found the number 1"),
        (
            "stop_rules:",
            "policy: {threads: 1025}\nstop_rules:",
            "policy.threads: found the number 1025; allowed: a number <= 1024",
        ),
    ],
)
def test_a_number_that_would_overflow_or_fill_the_memory_is_refused(plan_text, old, new, expected):
    found = problems(plan_text.replace(old, new))
    assert len(found) == 1 and expected in found[0]


def test_the_most_rollouts_that_one_sweep_may_have(plan_path, plan_text):
    assert parse_plan(plan_path, plan_text.replace("per_cell: 6", "per_cell: 17241").encode()).plan.sweep_rollouts == 999_978


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('end: ["<|end|>"]', "end: []", "model.tokens.end: found a list; allowed: a list that is not empty"),
        (
            'end: ["<|end|>"]',
            'end: ["<e>", "<e>"]',
            "model.tokens.end[1]: `<e>` is named before; open, close and every end token",
        ),
        ('end: ["<|end|>"]', 'end: ["</think>"]', "model.tokens.end[0]: `</think>` is named before"),
        (
            'end: ["<|end|>"]',
            'end: ["<e>"], close: <think>',
            "model.tokens.close: found `<think>`, which opens the thinking, too",
        ),
        ("targets: [q_proj, lm_head]", "targets: []", "model.lora.targets: found a list; allowed: a list that is not empty"),
        ("targets: [q_proj, lm_head]", "targets: [q_proj, q_proj]", "model.lora.targets[1]: `q_proj` is listed twice"),
    ],
)
def test_tokens_and_targets_that_can_never_run_are_refused_before_the_lock(plan_text, old, new, expected):
    found = problems(plan_text.replace(old, new))
    assert len(found) == 1 and expected in found[0]


def test_what_could_be_read_for_ever_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "device.yaml").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(UsageError, match=f"{name}.yaml: cannot be read: it is not a file"):
            load_plan(tmp_path / f"{name}.yaml")


def test_of_a_huge_file_only_the_start_is_read(tmp_path):
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(2**40)  # no machine here could hold it
    with pytest.raises(PlanError, match="the file has 1,099,511,627,776 bytes; a plan has at most 1,000,000"):
        load_plan(path)


def test_a_dangling_link_does_not_suggest_itself(tmp_path):
    (tmp_path / "a.yaml").symlink_to("nowhere")
    with pytest.raises(UsageError) as caught:
        load_plan(tmp_path / "a.yaml")
    assert caught.value.hint == "`ablation plan new NAME` writes a starting plan."
