"""`ablation merge`: a checkpoint as a model without an adapter, and whether a model folder is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.cli.complete import families, subjects
from ablation.cli.default_command import DefaultCommand
from ablation.cli.fit import echo
from ablation.cli.machine_options import Backend
from ablation.cli.run_folder import PlanOption, RunOption, find_run, named_run

if TYPE_CHECKING:
    from ablation.merge.source import Source

app = typer.Typer(
    cls=DefaultCommand,
    rich_markup_mode=None,
    subcommand_metavar="ARM@UPDATES | COMMAND [ARGS]...",
    help="""Hand a checkpoint over as a model of its own.

    `ablation merge ARM@UPDATES` merges every LoRA pair of the checkpoint into the base, compares the merged model with base and
    adapter on rollouts of the run, and writes a folder with a draft of a model card. `start@0` is the starting adapter.
    Options: `ablation merge run --help`.
    """,
)

Engine = Annotated[
    str, typer.Option("--engine", help="auto: transformers, and vLLM beside it where it is installed; transformers; vllm.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout when done; progress on stderr.")]


@app.command("run")
def merge(
    subject: Annotated[str, typer.Argument(metavar="ARM@UPDATES", help="For instance N@5.", autocompletion=subjects)],
    family: Annotated[
        str | None, typer.Option("--family", help="Left out: the one that is evaluated.", autocompletion=families)
    ] = None,
    plan: PlanOption = None,
    run: RunOption = None,
    policy: Backend = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Where to. Left out: merged/NAME-ARM@UPDATES beside runs/.")
    ] = None,
    texts: Annotated[int, typer.Option("--texts", min=1, help="Rollouts that the models are compared on.")] = 24,
    seed: Annotated[int, typer.Option("--seed", help="Which rollouts.")] = 20261101,
    longest: Annotated[int, typer.Option("--tokens", min=1, help="Sampled tokens of each that are scored, at most.")] = 4096,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """The default: merge a checkpoint into the base, check what came of it, and write the folder.

    Exit 3: base, adapter or journal are not those of the lock. Exit 4: the merged model is not what the adapter is, and no folder
    was left (`merge_lost_effect`). Exit 6: the checkpoint is not there yet.
    """
    from ablation.cli.run import goes_on_with, need_local_extra
    from ablation.errors import UsageError
    from ablation.plan.choose import command_options

    locked, root, _ = find_run(plan, named_run(None, run, plan), policy)
    need_local_extra()
    from ablation.merge.run import CARD, ENGINES, MergeRefused, Settings
    from ablation.merge.run import merge as make
    from ablation.merge.source import find_source
    from ablation.report.model_card import Facts, model_card

    if engine not in ENGINES:
        raise UsageError(f"--engine: found `{engine}`; it is one of {', '.join(ENGINES)}")
    source = find_source(locked, root, subject, family)
    facts = _facts(source, plan, run, policy, root)

    def card(made: dict[str, Any]) -> str:
        return model_card(Facts(record=made, **facts))

    target = to if to is not None else default_folder(root, source.family, source.name, locked.plan.main_family)
    again = f"ablation merge {subject}{command_options(locked.path, run, policy)}"
    try:
        with goes_on_with(again):
            record = make(source, Settings(target, texts, seed, longest, engine), _say, card)
    except MergeRefused as refused:
        if not as_json:
            _print(refused.record)
            raise
        _say(refused.message)
        refusal = {"error": refused.message, "hint": refused.hint, "exit_code": int(refused.exit_code), "refused": refused.code}
        typer.echo(json.dumps(refused.record | refusal, ensure_ascii=False, allow_nan=False))
        raise typer.Exit(int(refused.exit_code)) from None
    if as_json:
        typer.echo(json.dumps(record | {"folder": str(target)}, ensure_ascii=False, allow_nan=False))
        return
    _print(record)
    echo(f"{'done' if record['written'] else 'was there already'}: {target}")
    echo(f"draft of a model card: {target / CARD}")


@app.command("check")
def check(
    model: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model folder, or a .gguf file.")],
    plan: PlanOption = None,
    run: RunOption = None,
    policy: Backend = None,
    beside: Annotated[
        Path | None,
        typer.Option("--beside", metavar="FOLDER", help="A model that is whole: the merged one that this was made of."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Which problems, and the seeds of the rollouts.")] = 20261101,
    longest: Annotated[int, typer.Option("--tokens", min=1, help="Tokens of a rollout, at most.")] = 4096,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Whether a model in any format that transformers or vLLM loads is broken: a few rollouts beside the base's.

    Exit 4: it does not do what the base, or the model beside it, does.
    """
    from ablation.cli.run import need_local_extra
    from ablation.errors import ExitCode, UsageError

    locked, root, _ = find_run(plan, named_run(None, run, plan), policy)
    need_local_extra()
    from ablation.merge.breakage import failed_in_words
    from ablation.merge.check import check_model, find_model
    from ablation.merge.run import ENGINES
    from ablation.merge.source import locked_digest
    from ablation.plan.locate import locate
    from ablation.problems.problem import load_problems
    from ablation.report.merge_words import breakage_lines
    from ablation.report.safe import clean
    from ablation.rollouts.folder import RunFolder

    if engine not in ENGINES:
        raise UsageError(f"--engine: found `{engine}`; it is one of {', '.join(ENGINES)}")
    found = find_model(model)
    locked_digest(locked, "model.base")
    copy = RunFolder(root).problems
    problems = load_problems(copy if copy.is_file() else locate(locked.plan.problems.training, locked.path))
    base = locate(locked.plan.model.base, locked.path)
    record = check_model(locked, base, problems, found, beside=beside, engine=engine, seed=seed, longest=longest, say=_say)
    passed = record["breakage"]["passed"]
    code = ExitCode.DONE if passed else ExitCode.GATE
    if as_json:
        typer.echo(json.dumps(record | {"exit_code": int(code)}, ensure_ascii=False, allow_nan=False))
    else:
        echo(clean(f"{record['model']}: {record['format']}, loaded by {record['engine']}"))
        for line in breakage_lines(record["breakage"]):
            echo(clean(line))
    if not passed:
        _say(f"{model}: broken: {failed_in_words(record['breakage'])}")
    raise typer.Exit(int(code))


def default_folder(root: Path, family: str, name: str, main: str) -> Path:
    """`merged/NAME-ARM@UPDATES` beside `runs/`; a family that is not the first one is named."""
    parent = root.absolute().parent
    where = parent.parent if parent.name == "runs" else parent
    return where / "merged" / f"{root.absolute().name}{'' if family == main else f'-{family}'}-{name}"


def _say(text: str) -> None:
    from ablation.cli.say import say

    say(text, err=True)


def _facts(source: Source, plan: Path | None, run: Path | None, policy: str | None, root: Path) -> dict[str, Any]:
    """What the card says beside the merge: the verdict, proofs, journal and training data. Raises `IntegrityError`."""
    from collections import Counter

    from ablation.cli.plan_proofs import prove
    from ablation.cli.verdict import judge_folder
    from ablation.errors import IncompleteError
    from ablation.merge.texts import training_problems

    verdict, why = None, f"{root.name}: nothing has run"
    if root.is_dir():
        try:
            verdict = judge_folder(plan, run, policy, regrade=False)[0]
        except IncompleteError as error:
            why = error.message
    proved = prove(source.locked, root if root.is_dir() else None, None, None, None)
    loaded = [event for event in (source.journal.events if source.journal else ()) if event["event"] == "model_loaded"]
    packages = loaded[-1]["environment"]["packages"] if loaded and loaded[-1].get("environment") else {}
    state = proved.journal
    return {
        "plan": source.locked.plan,
        "verdict": verdict,
        "no_verdict": why,
        "proofs": [one.in_words() for one in proved.proofs],
        "journal": f"{len(state.events)} events, chain whole, head {state.head}" if state.events else None,
        "sources": dict(sorted(Counter(one.source for one in training_problems(source).values()).items())),
        "run_packages": packages,
    }


def _print(record: dict[str, Any]) -> None:
    from ablation.report.merge_words import merge_lines
    from ablation.report.safe import clean

    for line in merge_lines(record):
        echo(clean(line))
