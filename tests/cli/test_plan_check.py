"""What `plan lock` finds in the problems, the prompts and the sampling, before anything is sampled."""

import hashlib
import json

import pytest
from typer.testing import CliRunner

from ablation.chain import GENESIS, chained_line
from ablation.cli.plan import app
from ablation.ledger.ledger import write_mark
from ablation.problems.problem import Problem
from tests.plan.conftest import OWN_TABLE, PROBLEMS, RIGGED_TABLE, TEXT, with_table, write_plan
from tests.verdict.study import plan_dict, problems_bytes

INTEGERS = PROBLEMS.splitlines()
TRAINING = hashlib.sha256(PROBLEMS.encode()).hexdigest()


def lock(folder, text=TEXT, problems=PROBLEMS):
    path = write_plan(folder, text.replace(TRAINING, hashlib.sha256(problems.encode()).hexdigest()))
    (folder / "problems.jsonl").write_text(problems)
    done = CliRunner().invoke(app, ["lock", str(path)])
    return "" if done.exit_code == 0 else "\n".join(done.exception.lines())


def with_gold(grader: str, gold: str) -> str:
    first = json.loads(INTEGERS[0]) | {"grader": grader, "gold": gold}
    return "\n".join([json.dumps(first), *INTEGERS[1:]]) + "\n"


@pytest.mark.parametrize("gold", ["", r"\text{see figure}", "½"])  # A12
def test_a_gold_that_does_not_grade_is_refused_by_name(tmp_path, gold):
    said = lock(tmp_path, problems=with_gold("math", gold))
    assert f"problem `p00`: gold `{gold}` does not grade as correct against itself (grader `math`)" in said
    assert not (tmp_path / "small.lock").exists()


@pytest.mark.parametrize(("grader", "gold"), [("math", r"\frac{1}{2}"), ("math", r"\sqrt{2}"), ("choice", "B")])
def test_a_gold_that_grades_is_locked(tmp_path, grader, gold):
    assert lock(tmp_path, problems=with_gold(grader, gold)) == ""
    assert (tmp_path / "small.lock").exists()


@pytest.mark.parametrize("name", ["stop", "stop_strings", "stop_token_ids"])
def test_stop_strings_are_not_part_of_the_language(tmp_path, name):  # C04: only end tokens end a rollout
    said = lock(tmp_path, TEXT.replace("{max_tokens: 200}", f'{{max_tokens: 200, {name}: ["Question:"]}}'))
    assert f"sampling.{name}" in said and "unknown" in said


@pytest.mark.parametrize(
    ("template", "refused"),
    [
        ("{{ messages[0]['content'] }}", "`low` and `medium`"),
        ("{% if reasoning_effort == 'low' %}a{% else %}b{% endif %}", "`medium` and `xhigh`"),
        ("{{ reasoning_effort }}", ""),
    ],
)
def test_efforts_that_the_template_cannot_tell_apart_are_refused(tmp_path, template, refused):
    from ablation.files import sha256_path

    base = tmp_path / "base"
    base.mkdir()
    (base / "chat_template.jinja").write_text(template)
    (base / "config.json").write_text("{}")
    old = next(line for line in TEXT.splitlines() if "base:" in line)
    said = lock(tmp_path, TEXT.replace(old, f"  base: {{at: base, sha256: {sha256_path(base)}}}"))
    assert (
        (f"problems.cells.{refused.split('`')[3]}" in said and f"{refused} are rendered as the same prompt" in said)
        if refused
        else said == ""
    )


def test_a_trained_problem_under_another_id_is_found_in_a_never_used_set(tmp_path):
    other = "\n".join(json.dumps(json.loads(line) | {"id": f"new-{place}"}) for place, line in enumerate(INTEGERS)) + "\n"
    other = (
        other.replace('"0 + 1 ="', '" 0  +  1 = "')
        .replace('"2 + 1 ="', '"200 + 1 =" ')
        .replace('"gold": "3"', '"gold": "201"', 1)
    )
    (tmp_path / "new.jsonl").write_text(other)
    never = f"""
  never_used:
    problems: {{at: new.jsonl, sha256: {hashlib.sha256(other.encode()).hexdigest()}}}
    rules: [{{name: more_right, measure: correct, compare: change, op: ">=", limit: -5}}]
"""
    said = lock(tmp_path, TEXT + never.strip("\n") + "\n")
    assert "verdict.never_used.problems: 19 of these problems are trained on: new-0, new-1, new-10, new-11, new-12" in said


def test_rollouts_that_cannot_be_dealt_over_a_set_are_found_before_anything_is_trained(tmp_path):
    fresh = json.dumps({"id": "new", "source": "s", "prompt": "Name a cat.", "grader": "exact", "gold": "Tom"}) + "\n"
    (tmp_path / "new.jsonl").write_text(fresh)
    place = f"{{at: new.jsonl, sha256: {hashlib.sha256(fresh.encode()).hexdigest()}}}"
    rule = '{name: right, measure: correct, compare: change, op: ">=", limit: -1}'
    never = f"  never_used: {{rollouts: 4, problems: {place}, rules: [{rule}]}}\n"
    said = lock(tmp_path, TEXT + never)
    assert (
        "verdict.never_used.rollouts: found 4 rollouts for 3 cells (1 problems, 3 efforts); each cell gets equally many" in said
    )
    assert lock(tmp_path, TEXT + never.replace("rollouts: 4", "rollouts: 4, efforts: [low, medium]")) == ""


def test_a_ledger_that_lacks_a_stage_of_a_run_beside_it_proves_no_problem_new(tmp_path):
    fresh = json.dumps({"id": "new", "source": "s", "prompt": "Name a cat.", "grader": "exact", "gold": "Tom"}) + "\n"
    (tmp_path / "new.jsonl").write_text(fresh)
    never = f"""
  never_used:
    rollouts: 3
    problems: {{at: new.jsonl, sha256: {hashlib.sha256(fresh.encode()).hexdigest()}}}
    rules: [{{name: more_right, measure: correct, compare: change, op: ">=", limit: -1}}]
"""
    journal = tmp_path / "runs" / "other" / "journal.jsonl"
    journal.parent.mkdir(parents=True)
    event = {
        "seq": 0,
        "time": "2026-01-01T00:00:00+00:00",
        "event": "stage_sampled",
        "plan": "d" * 64,
        "stage": "main/start/sweep",
    }
    journal.write_bytes(chained_line(event, GENESIS) + b"\n")
    said = lock(tmp_path, TEXT + never.strip("\n") + "\n")
    assert "verdict.never_used.problems: whether they were ever used cannot be known: " in said
    assert (
        "other/journal.jsonl: main/start/sweep was sampled at 2026-01-01T00:00:00+00:00, and the ledger has no mark of it" in said
    )
    write_mark(
        tmp_path / "runs" / "ledger.jsonl",
        plan="d" * 64, study="other", stage="main/start/sweep", use="sampled",
        problems=[Problem("x", "s", "Name a dog.", "exact", "Rex")],
    )  # fmt: skip
    assert "whether they were ever used" not in lock(tmp_path, TEXT + never.strip("\n") + "\n")


STATE = {
    "id": "a",
    "task": "t",
    "messages": [{"role": "user", "content": "what is here?"}],
    "tools": [{"name": "ls", "parameters": {"type": "object"}}],
}
WITH_TOOLS = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
CALLS = "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
SHOWS = "{% for m in messages %}{{ m.content }}" + CALLS + "{% endfor %}{{ reasoning_effort }}"
ROLES = "{% if messages[0].role != 'user' %}{{ raise_exception('only the role user') }}{% endif %}"


def release(folder, states=(), prompts=(), template=WITH_TOOLS + SHOWS):
    """What `plan lock` says of a plan whose release has agent states and safety prompts."""
    from ablation.files import sha256_path

    base = folder / "base"
    base.mkdir()
    (base / "chat_template.jinja").write_text(template)
    (base / "config.json").write_text("{}")
    guards, more = [], ""
    for name, field, rows, effort, measure in (
        ("agent", "states", states, "rollouts_per_state: 2, effort: low", "valid_tool_call"),
        ("safety", "prompts", prompts, "efforts: [low]", "missing_answer"),
    ):
        if rows:
            data = "".join(json.dumps(one) + "\n" for one in rows)
            (folder / f"{name}.jsonl").write_text(data)
            digest = hashlib.sha256(data.encode()).hexdigest()
            more += f'    {name}: {{{effort}, {field}: {{at: {name}.jsonl, sha256: "{digest}"}}}}\n'
            guards.append(f'{{name: {name}, measure: {measure}, compare: change, op: "<=", limit: 0}}')
    old = next(line for line in TEXT.splitlines() if "base:" in line)
    text = TEXT.replace(old, f"  base: {{at: base, sha256: {sha256_path(base)}}}")
    section = f"  release:\n    guards: [{', '.join(guards)}]\n{more}"
    anchor = "  replication: {control: C, family: replication}\n"
    assert anchor in text
    return lock(folder, text.replace(anchor, anchor + section))


def test_states_and_prompts_that_the_template_shows_are_locked(tmp_path):
    prompt = {"id": "p", "category": "plain", "prompt": "Name a river."}
    assert release(tmp_path, [STATE], [prompt]) == ""
    assert (tmp_path / "small.lock").exists()


@pytest.mark.parametrize(
    ("change", "template", "said"),
    [
        ({"messages": []}, WITH_TOOLS + SHOWS, "agent.jsonl:1: messages: found an empty list"),
        ({"tools": [{"name": "ls", "parameters": {"type": 3}}]}, WITH_TOOLS + SHOWS, "parameters.type: not a JSON Schema"),
        ({}, SHOWS, "agent state `a` at effort `low`: the chat template does not render tools: `ls` is not in the prompt"),
        ({"effort": "xhigh"}, SHOWS, "agent state `a` at effort `xhigh`"),
        ({"messages": [{"role": "system", "content": "s"}, *STATE["messages"]]}, ROLES + WITH_TOOLS + SHOWS, "failed: only the role user"),
        ({}, WITH_TOOLS + SHOWS.replace("tool_call>", "call>"), "writes calls in a way that is not read here: <call>{"),
        ({}, SHOWS + "{{ made_up() }}", ""),  # what needs more than there is here is left to the run
    ],
)  # fmt: skip
def test_states_that_could_not_be_sampled_as_they_are_are_not_locked(tmp_path, change, template, said):
    found = release(tmp_path, [STATE | change], template=template)
    assert (f"verdict.release.agent.states: {tmp_path}" in found or "verdict.release.agent.states: agent state" in found) == bool(
        said
    )
    assert said in found
    assert (tmp_path / "small.lock").exists() == (not said)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ({"id": "p", "category": "rude", "prompt": "?"}, "safety.jsonl:1: category: unknown category `rude`"),
        (
            {"id": "p", "category": "plain", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "?"}]},
            "safety prompt `p` at effort `low`: the chat template failed: only the role user",
        ),
    ],
)
def test_safety_prompts_are_looked_at_too(tmp_path, prompt, said):
    found = release(tmp_path, prompts=[prompt], template=ROLES + SHOWS)
    assert "verdict.release.safety.prompts" in found and said in found


@pytest.mark.parametrize("command", ["check", "lock"])
def test_a_table_that_says_replicated_without_a_replication_is_refused_at_its_row(tmp_path, command):
    path = write_plan(tmp_path, with_table(RIGGED_TABLE))
    done = CliRunner().invoke(app, [command, str(path)])
    (said,) = done.exception.lines()
    line = 1 + path.read_text().split("\n").index(f"  replication: {{control: C, family: replication, table: {RIGGED_TABLE}}}")
    assert said.startswith(f"{path}:{line}:") and "verdict.replication.table[0]: says REPLICATED although" in said
    assert CliRunner().invoke(app, [command, str(write_plan(tmp_path, with_table(OWN_TABLE)))]).exit_code == 0


@pytest.mark.parametrize(("arms", "told"), [(1000, 0), (1001, 1)])
def test_a_plan_of_very_many_arms_is_told_what_a_look_at_its_run_takes(tmp_path, arms, told):
    tree = plan_dict(arms={f"A{number}": {"weighting": "token"} for number in range(arms)})
    tree["verdict"]["replication"]["control"] = "A0"
    path = write_plan(tmp_path, json.dumps(tree))
    (tmp_path / "problems.jsonl").write_bytes(problems_bytes())
    found = json.loads(CliRunner().invoke(app, ["check", str(path), "--json"]).stdout)
    assert len([note for note in found["notes"] if f"{arms:,} arms: every look at a finished run judges each" in note]) == told
