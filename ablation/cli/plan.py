"""`ablation plan ...`: write, check, review and lock a plan, and prove later that it is the locked one."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.cli import plan_proofs
from ablation.cli.fit import echo
from ablation.cli.machine_options import Backend
from ablation.cli.plan_power import limits_between, luck_before_lock, power
from ablation.cli.plan_review import review

if TYPE_CHECKING:
    from ablation.plan.load import LoadedPlan

app = typer.Typer(no_args_is_help=True, help="Write, check, review and lock a plan.")
app.command()(power)
app.command()(review)
plan_proofs.register(app)

MANY_ARMS = 1000
"""With more of them `plan check` says how long a look at the run takes."""
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file, for instance plans/my-study.yaml.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout; everything else goes to stderr.")]


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the study: letters, digits, - and _.")],
    folder: Annotated[Path, typer.Option(help="Where to write NAME.yaml.")] = Path("plans"),
    start: Annotated[
        Path | None, typer.Option("--from", metavar="PLAN", help="Copy this plan, comments too, under the new name.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a commented starting plan. `check` and `lock` refuse it until its placeholders are filled in.

    With --from it is a copy of a valid plan that differs in its name alone.
    """
    from ablation.cli.plan_copy import name_in_yaml, renamed
    from ablation.errors import UsageError
    from ablation.files import write_bytes
    from ablation.plan.load import template
    from ablation.plan.yaml_reader import PLACEHOLDER

    name = name.removesuffix(".yaml")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", name) or PLACEHOLDER.match(name):
        raise UsageError(
            f"`{name}` is not a name",
            hint="Use at most 40 letters, digits, `-` and `_`; begin with a letter or digit, not with TODO.",
        )
    path = folder / f"{name}.yaml"
    if path.exists():
        raise UsageError(f"{path}: is there already; nothing was written", hint="Choose another name.")
    if start is None:
        write_bytes(path, template(name_in_yaml(name)))
        todo = "Replace every TODO in it"
    else:
        write_bytes(path, renamed(start, path, name))
        todo = f"It is {start} under another name: change what your study changes"
    _emit(as_json, {"plan": str(path)}, f"{path} written. {todo}, then: ablation plan check {path}")


@app.command()
def check(file: PlanFile, as_json: Json = False) -> None:
    """Say everything that is wrong with a plan, with file, line and column; or one line with its digest and its lock.

    Exit 3: the plan is valid, but not what its lock is of.
    """
    from ablation.cli.plan_check import checked_plan
    from ablation.errors import ExitCode
    from ablation.plan.load import PlanError, field_path
    from ablation.plan.locate import missing_resources

    try:
        loaded = checked_plan(file)
    except PlanError as error:
        if as_json:  # more than the program's general error object: every problem on its own
            problems = [
                {"line": fault.line, "column": fault.column, "field": field_path(fault.path), "problem": fault.text}
                for fault in error.problems
            ]
            _print_json({"plan": str(file), "ok": False, "problems": problems})
            _note("\n".join(error.lines()))
            raise typer.Exit(int(error.exit_code)) from None
        raise
    from ablation.report.plan_page import lock_words, state_of_lock

    missing, lock = missing_resources(loaded), state_of_lock(file)
    for line in missing:
        _note(f"not at hand: {line}")
    repeated, notes = _note_repeated_arms(loaded), _notes(loaded) + _note_many_arms(loaded)
    result = {
        "plan": str(file),
        "ok": True,
        "repeated_arms": repeated,
        "notes": notes,
        "digest": loaded.digest,
        "bytes_sha256": loaded.bytes_sha256,
        "missing": missing,
        "lock": lock,
    }
    _emit(
        as_json,
        result,
        f"{file}: valid, digest {loaded.digest}" + ("" if lock["state"] == "not locked" else f"\n{lock_words(lock)}"),
    )
    if lock["state"] == "refused":
        raise typer.Exit(int(ExitCode.INTEGRITY))


@app.command()
def show(
    file: PlanFile,
    resolved: Annotated[bool, typer.Option("--resolved", help="The plan as YAML with every default written out.")] = False,
    flops: Annotated[
        float | None, typer.Option(min=1.0, help="Rate for the time estimate, in operations per second (default: CPU threads).")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="NAME", help="What it takes there: h200x8, a10x1, cpu, ..., or tinker.")
    ] = None,
    policy: Annotated[str | None, typer.Option(metavar="BACKEND", help="With --hardware: local or vllm; the plan's own.")] = None,
    mean_tokens: Annotated[
        float | None, typer.Option(min=1.0, help="With --hardware: mean tokens of a rollout (default: the plan's s0).")
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, max=10_000_000, help="With --hardware: tokens of a prompt.")] = 512,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --hardware: the model's config.json (default: that of the base).")
    ] = None,
    assume: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="With --hardware: another value for an assumption.")
    ] = None,
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="YAML",
            help="With --hardware: prices instead of the plan's, for instance '{currency: EUR, device_hour: {h200: 3.50}}'.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """The plan on one page, for review: arms, schedule, rules in words, digests, files, cost.

    With --hardware: memory, time and money of each arm there, with every assumption.
    """
    if hardware is not None:
        from ablation.cli.plan_hardware import on_hardware

        own = {"backend": policy, "mean": mean_tokens, "prompt": prompt_tokens, "config": config, "assume": assume or []}
        on_hardware(file, hardware, **own, prices=prices, as_json=as_json)
        return
    if any((policy, mean_tokens, config, assume, prices is not None)):
        from ablation.errors import UsageError

        raise UsageError("--policy, --mean-tokens, --config, --assume and --prices go with --hardware NAME, which is not there")
    from ablation.plan.canonical import canonical_tree
    from ablation.plan.load import load_plan
    from ablation.plan.resolved import resolved_yaml

    loaded = load_plan(file)
    if resolved:
        if as_json:
            _print_json({"digest": loaded.digest, "plan": canonical_tree(loaded.plan)})
        else:
            sys.stdout.write(resolved_yaml(loaded.plan))
        return
    from ablation.report.plan_page import plan_page, plan_summary, state_of_lock

    summary = plan_summary(loaded, state_of_lock(file), flops) | {"deviations": plan_proofs.deviations_beside(loaded)}
    if as_json:
        _print_json(summary)
        return
    from ablation.report.terminal import print_page

    print_page(plan_page(loaded, summary))


@app.command()
def lock(file: PlanFile, as_json: Json = False) -> None:
    """Lock a plan, once: write PLAN's .lock and print the digest that reviewers compare.

    A plan that is what was locked stays as it is, and its digest is printed. Exit 3: it is not what was locked.
    With `policy: {backend: vllm}`, and where vLLM is installed, the engine is asked first: it must take the model, and an adapter
    on each of `lora.targets` must change what it samples.
    """
    from ablation.cli.plan_check import checked_plan
    from ablation.plan.choose import lock_path
    from ablation.plan.lock import lock_plan, verify_lock

    if lock_path(file).exists():
        own = verify_lock(file).lock
        found = {"plan": str(file), "lock": str(own.path), "digest": own.digest, "bytes_sha256": own.bytes_sha256}
        found |= {"locked_at": own.locked_at, "locked_by": own.locked_by}
        _emit(as_json, found, f"{file} was locked already, at {own.locked_at} by {own.locked_by}\ndigest {own.digest}")
        return
    loaded = checked_plan(file)
    _note_repeated_arms(loaded)
    _notes(loaded)
    luck, lines = luck_before_lock(loaded)
    sampler = _asked_engine(loaded)
    locked = lock_plan(file, loaded, sampler)
    for name, why in locked.owed.items():
        _note(_wrapped(f"owed, so this plan cannot run yet: {name}: {why}"))
    result = {"plan": str(file), "lock": str(locked.path), "digest": locked.digest, "bytes_sha256": locked.bytes_sha256}
    result |= {"locked_at": locked.locked_at, "locked_by": locked.locked_by, "owed": locked.owed, "luck": luck}
    if sampler is not None:
        result |= {"sampler": sampler}
    text = f"{locked.path} written at {locked.locked_at} by {locked.locked_by}\ndigest {locked.digest}"
    _emit(as_json, result, "\n".join([text, *map(_wrapped, lines)]))


def _asked_engine(loaded: LoadedPlan) -> dict[str, Any] | None:
    """What the sampling engine of a plan did when it was asked, and a line about it."""
    if loaded.plan.policy.vllm is None:
        return None
    from ablation.cli.progress import make_reporter
    from ablation.study.ask_engine import ask_engine

    with make_reporter() as reporter:
        found = ask_engine(loaded, reporter)
    assert found is not None
    if found["asked"]:
        _note(_wrapped(f"vLLM {found['vllm']} takes the model and uses an adapter on {', '.join(found['effects'])}"))
    else:
        _note(
            _wrapped(
                f"vLLM was not asked whether it takes the model and the adapter: {found['why']}; a run asks before it starts"
            )
        )
    return found


def _note_repeated_arms(loaded: LoadedPlan) -> list[tuple[str, str]]:
    """Say which arms are another one under a second name: valid, but hardly meant."""
    repeated = loaded.plan.repeated_arms
    for arm, first in repeated:
        _note(f"note: arms.{arm} trains as arms.{first} does, under another name: every number of it would be the same")
    return repeated


def _notes(loaded: LoadedPlan) -> list[str]:
    """Say what is valid but hardly meant, or cannot come to anything."""
    from ablation.power.doubts import doubts

    lines = doubts(loaded.plan)
    for line in lines:
        _note(_wrapped(f"warning: {line}"))
    return lines + _note_families(loaded) + _note_efforts(loaded) + _note_clusters(loaded) + _note_limits(loaded)


def _note_efforts(loaded: LoadedPlan) -> list[str]:
    """Say which effort of a set looks like a slip of the pen: any name is allowed, and the template may take it."""
    from ablation.plan.phase2 import doubtful_efforts

    lines = [f"{field}: {text}" for field, text in doubtful_efforts(loaded.plan)]
    for line in lines:
        _note(_wrapped(f"warning: {line}"))
    return lines


def _note_families(loaded: LoadedPlan) -> list[str]:
    """Say which families of seeds nothing runs in: valid, but hardly meant."""
    from ablation.plan.runs import families_of, planned_runs

    used = families_of(planned_runs(loaded.plan))
    why = "nothing runs in it: it is neither the first family, nor the replication's, nor one of a claim"
    lines = [f"families.{name}: {why}" for name in loaded.plan.families if name not in used]
    for line in lines:
        _note(_wrapped(f"warning: {line}"))
    return lines


def _note_clusters(loaded: LoadedPlan) -> list[str]:
    """Say where there will be no interval because there are too few cells."""
    statistics, cells = loaded.plan.statistics, len(loaded.plan.cells)
    if cells >= statistics.min_clusters or statistics.few_clusters == "t":
        return []
    line = (
        f"statistics.min_clusters: {statistics.min_clusters}, and there are {cells} cells: no interval over cells can be made, "
        "and a rule on the end of one is undecided (`few_clusters: t` makes t intervals instead)"
    )
    _note(f"note: {line}")
    return [line]


def _note_many_arms(loaded: LoadedPlan) -> list[str]:
    """Say that a run of so many arms is not looked at in seconds."""
    count = len(loaded.plan.arms)
    if count <= MANY_ARMS:
        return []
    line = (
        f"{count:,} arms: every look at a finished run judges each of them anew from its rollouts. With {MANY_ARMS:,} arms of 24 "
        "rollouts a verdict took 12 seconds of one core, a report 21; both grow with the arms and the rollouts of each"
    )
    _note(_wrapped(f"note: {line}"))
    return [line]


def _note_limits(loaded: LoadedPlan) -> list[str]:
    """Say which limits on shares no number of rollouts comes to, and what does."""
    lines = limits_between(loaded)
    for line in lines:
        _note(_wrapped(f"note: {line}"))
    return lines


@app.command()
def verify(
    file: Annotated[Path | None, typer.Argument(metavar="[PLAN]", help="By default the only locked plan in plans/.")] = None,
    run: Annotated[Path | None, typer.Option("--run", help="The run folder, with the journal. Left out: runs/NAME.")] = None,
    policy: Backend = None,
    journal_head: Annotated[
        str | None, typer.Option(metavar="LENGTH:SHA256", help="What `ablation journal head` printed: finds a cut since then.")
    ] = None,
    allowed_signers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Whose SSH signatures count (`man ssh-keygen`, ALLOWED SIGNERS).")
    ] = None,
    tsa_ca: Annotated[Path | None, typer.Option(metavar="FILE", help="PEM root of the timestamp's authority.")] = None,
    as_json: Json = False,
) -> None:
    """Prove that a plan and its files are the ones that were locked; otherwise say what changed (exit code 3).

    Then what signature, git and timestamp prove of the lock's author and time, and whether journal and deviations are whole.
    """
    from ablation.plan.choose import choose_plan
    from ablation.plan.locate import missing_resources
    from ablation.plan.lock import verify_lock

    path = choose_plan(file)
    locked = verify_lock(path, resources=True)
    proved = plan_proofs.prove(locked, run, journal_head, allowed_signers, tsa_ca, policy)
    missing = missing_resources(locked)
    for line in locked.warnings:
        _note(f"warning: {line}")
    for line in missing:
        _note(f"not at hand, so not checked: {line}")
    lock_file = locked.lock
    result = {"plan": str(path), "ok": True, "digest": locked.digest, "bytes_sha256": locked.bytes_sha256}
    result |= {
        "locked_at": lock_file.locked_at,
        "locked_by": lock_file.locked_by,
        "warnings": locked.warnings,
        "missing": missing,
    }
    text = f"{path}: as it was locked at {lock_file.locked_at} by {lock_file.locked_by}\ndigest {locked.digest}"
    _emit(as_json, result | proved.as_json(), "\n".join([text, *proved.lines()]))


@app.command()
def restore(file: PlanFile, as_json: Json = False) -> None:
    """Put the locked text of a plan back; an edited plan is kept beside it."""
    from ablation.plan.lock import restore_plan

    kept = restore_plan(file)
    text = f"{file}: the locked text is in place" + (f"; the edited plan is kept as {kept}" if kept else "")
    _emit(as_json, {"plan": str(file), "kept": str(kept) if kept else None}, text)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD")],
    new_plan: Annotated[Path, typer.Argument(metavar="NEW")],
    full: Annotated[bool, typer.Option("--full", help="Long values whole; otherwise what they have.")] = False,
    as_json: Json = False,
) -> None:
    """Compare two plans field by field, defaults included; layout and comments do not count."""
    from ablation.plan.canonical import canonical_tree
    from ablation.plan.diff import diff_trees
    from ablation.plan.load import load_plan

    trees = [canonical_tree(load_plan(path).plan) for path in (old, new_plan)]
    lines = diff_trees(*trees, full=full or as_json)
    text = "\n".join([f"{old} -> {new_plan}", *lines]) if lines else f"{old} and {new_plan} are the same plan"
    _emit(as_json, {"same": not lines, "differences": [line.strip() for line in lines]}, text)


@app.command()
def digest(
    place: Annotated[str, typer.Argument(metavar="PATH", help="A file or folder, or package:, recipe:, hub: as in a plan.")],
    as_json: Json = False,
) -> None:
    """The digest that a plan's `sha256` needs for a file or folder."""
    from ablation.files import sha256_path
    from ablation.plan.locate import find_place

    path = find_place(place)
    value = sha256_path(path)
    _emit(as_json, {"at": place, "path": str(path), "sha256": value}, value)


@app.command()
def schema() -> None:
    """The JSON Schema of the plan language, for editors."""
    from ablation.plan.model import Plan

    _print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **Plan.model_json_schema()})


def _wrapped(text: str) -> str:
    """`text` in lines of at most 80 columns, as far as paths and digests allow."""
    return textwrap.fill(text, 80, break_long_words=False, break_on_hyphens=False, subsequent_indent="  ")


def _emit(as_json: bool, value: dict[str, Any], text: str) -> None:
    """The result of a command: one JSON object, or text."""
    if as_json:
        _print_json(value)
    else:
        echo(text)


def _print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _note(text: str) -> None:
    echo(text, err=True)
