"""Raters: a person at the terminal, a file that was filled in elsewhere, a judge model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.cli.blind_run import JSON, PLAN, RATER, RUN, SET, SUBJECT, find_comparison, print_json
from ablation.cli.machine_options import Backend
from ablation.cli.say import say

if TYPE_CHECKING:
    from ablation.blind.batch import Item
    from ablation.cli.blind_run import BlindRun


YES_NO = {"y": True, "yes": True, "n": False, "no": False}


def rate(
    subject: SUBJECT,
    rater: RATER,
    name: SET = "held-out",
    plan: PLAN = None,
    run: RUN = None,
    policy: Backend = None,
    as_json: JSON = False,
) -> None:
    """Show what is not rated yet, one after the other, and ask the questions. Every rating is kept at once.

    First you confirm that nobody told you whose answers these are. An empty line or the end of the input stops; the same command
    goes on from there. Exit 6: something is still open.
    """
    from ablation.blind.known import check_rater_is_blind
    from ablation.blind.ratings import PERSON, Reply, check_open, check_way
    from ablation.errors import UsageError

    found = find_comparison(name, subject, plan, run, policy)
    state = found.state(check=True)
    check_open(found.folder, rater, state.settings.raters, [] if state.unsealed is None else [state.unsealed], state.left)
    check_rater_is_blind(found.folder, state.batch, rater, state.ratings, found.events())
    if rater in state.ratings:
        check_way(state.ratings[rater], PERSON, None)
    keep, left = found.add(rater), state.open(rater, PERSON)
    if left and not _begin(state.batch.kind):
        left = []
    for place, (number, order) in enumerate(left, start=1):
        item = state.batch.item(number)
        assert item is not None
        if (number, order) not in found.state().open(rater, PERSON):
            continue  # rated meanwhile in a browser, under the same name
        _show(item, f"{place} of {len(left)} that are open")
        values = _answers(item)
        if values is None:
            break
        try:
            keep([Reply(number, values, PERSON)])
        except UsageError as error:
            if (number, order) in found.state().open(rater, PERSON):
                raise
            typer.echo(f"{error.message}: that rating counts, and this one was not kept", err=True)
    _end(found, rater, as_json)


def import_ratings(
    what: Annotated[
        list[str], typer.Argument(metavar="[SET] FILE", help="The form as the rater filled it in, or what the page saved.")
    ],
    subject: SUBJECT,
    rater: RATER,
    option: Annotated[
        str | None, typer.Option("--set", metavar="SET", help="The same as SET: held-out (if left out) or safety.")
    ] = None,
    plan: PLAN = None,
    run: RUN = None,
    policy: Backend = None,
    as_json: JSON = False,
) -> None:
    """Take the ratings of a JSON file, all of them or none. Exit 6: the rater has not rated everything yet."""
    from ablation.blind.form import read_form
    from ablation.blind.known import check_rater_is_blind
    from ablation.blind.ratings import FILE, Ratings, check_open, check_way

    name, file = _set_and_file(what, option)
    found = find_comparison(name, subject, plan, run, policy)
    state = found.state(check=True)
    check_open(found.folder, rater, state.settings.raters, [] if state.unsealed is None else [state.unsealed], state.left)
    check_rater_is_blind(found.folder, state.batch, rater, state.ratings, found.events())
    have = state.ratings.get(rater) or Ratings(rater, (), "", b"")
    check_way(have, FILE, None)
    found.add(rater)(read_form(file, state.batch, have))
    _end(found, rater, as_json)


def judge(
    base_url: Annotated[
        str, typer.Option("--base-url", metavar="URL", help="An OpenAI-compatible server, for instance http://127.0.0.1:8000/v1.")
    ],
    model: Annotated[str, typer.Option("--model", help="The model's name there.")],
    subject: SUBJECT,
    name: SET = "held-out",
    rater: RATER = "judge",
    temperature: Annotated[
        float, typer.Option("--temperature", min=0, help="Of the judge. At 0 many servers repeat themselves.")
    ] = 0.0,
    top_p: Annotated[float, typer.Option("--top-p", min=0.0, max=1.0, help="Of the judge.")] = 1.0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Of one reply, thinking included.")] = 2048,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for one whole reply.")] = 600.0,
    plan: PLAN = None,
    run: RUN = None,
    policy: Backend = None,
    as_json: JSON = False,
) -> None:
    """Ask a judge model. A reply that cannot be read is asked for again as the plan says, kept, and never a pass.

    The key of the server comes from OPENAI_API_KEY. Exit 6: the server could not be reached; the same command goes on.
    """
    from ablation.blind.judge import Judge, ask
    from ablation.blind.ratings import JUDGE, check_open, check_way

    found = find_comparison(name, subject, plan, run, policy)
    state = found.state(check=True)
    check_open(found.folder, rater, state.settings.raters, [] if state.unsealed is None else [state.unsealed], state.left)
    asked = Judge(base_url, model, temperature, top_p, max_tokens, timeout)
    if rater in state.ratings:
        check_way(state.ratings[rater], JUDGE, asked.settings(state.batch.kind))
    keep = found.add(rater)
    for reply in ask(state, rater, asked, lambda one: keep([one])):
        way = f", order {reply.order}" if len(state.orders(JUDGE)) > 1 else ""
        problem = "" if reply.values is not None or reply.judge is None else f": the reply {reply.judge['problem']}"
        say(f"item {reply.item}{way}, attempt {reply.attempt}: {reply.status}{problem}", err=as_json)
    _end(found, rater, as_json)


def _show(item: Item, where: str) -> None:
    from ablation.report.safe import clean

    lines = [f"\n=== {'Answer' if item.labels else 'Pair'} {item.number} ({where}) ===", "--- Problem", item.prompt]
    for side, texts in item.texts.items():
        for kind, text in texts.items():
            lines += [f"--- {kind.capitalize()}" if item.labels else f"--- {side}: {kind}", text]
    typer.echo(clean("\n".join(lines)), err=True)


def _set_and_file(what: list[str], option: str | None) -> tuple[str, Path]:
    """The set and the file of `import [SET] FILE`. Raises `UsageError` for anything else."""
    from ablation.errors import UsageError

    if len(what) > 2:
        raise UsageError(f"found {len(what)} arguments ({' '.join(what)})", hint="It is: ablation blind import [SET] FILE.")
    named = what[0] if len(what) == 2 else None
    if None not in (named, option) and named != option:
        raise UsageError(f"found the set `{named}` and --set {option}", hint="Say it once.")
    return named or option or "held-out", Path(what[-1])


def _begin(kind: str) -> bool:
    """Tell the rater what is asked, and have it confirmed that the read is blind; False if they stop here.

    Raises `GateError` if somebody told them.
    """
    from ablation.blind.batch import NEEDED_CHECK, NOT_TOLD, PAIRS
    from ablation.errors import GateError

    if kind == PAIRS:
        typer.echo(f"Each pair is two answers, X and Y, to one problem. {NEEDED_CHECK}", err=True)
    answer = _ask(f"{NOT_TOLD} Is that so?", YES_NO, "y or n")
    if answer is False:
        raise GateError(
            "whoever knows whose answers these are cannot rate them blind; nothing was taken",
            hint="Somebody else has to rate them.",
        )
    return answer is True


def _answers(item: Item) -> dict[str, Any] | None:
    """What the person says to every question; None if they stop."""
    from ablation.blind.batch import LABEL_QUESTION, LABEL_WORDS, PAIR_QUESTIONS

    values: dict[str, Any] = {}
    for name in item.fields:
        if item.labels:
            for number, label in enumerate(item.labels, start=1):
                typer.echo(f"  {number}  {label}: {LABEL_WORDS.get(label, label)}", err=True)
            known = {word: label for number, label in enumerate(item.labels, start=1) for word in (str(number), label)}
            answer = _ask(LABEL_QUESTION, known, "a number or a label")
        else:
            answer = _ask(PAIR_QUESTIONS[name], YES_NO, "y or n")
        if answer is None:
            return None
        values[name] = answer
    return values


def _ask(question: str, known: dict[str, Any], words: str) -> Any:
    """The answer to one question; None for an empty line or the end of the input."""
    while True:
        typer.echo(f"{question} [{words}] ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line.strip():
            typer.echo("", err=True)
            return None
        if line.strip().lower() in known:
            return known[line.strip().lower()]
        typer.echo(f"  `{line.strip()[:40]}` is not {words}", err=True)


def _end(found: BlindRun, rater: str, as_json: bool) -> None:
    """Say how far this rater is; exit 6 if something is still open."""
    from ablation.errors import ExitCode

    state = found.state()
    left = state.open(rater)
    code = ExitCode.INCOMPLETE if left or rater not in state.ratings else ExitCode.DONE
    rated = len(state.ratings[rater].replies) if rater in state.ratings else 0
    if as_json:
        print_json(
            {
                "rater": rater,
                "replies": rated,
                "open": [number for number, _ in left],
                "missing": state.missing,
                "exit_code": int(code),
            }
        )
    elif left or not rated:
        say(f"`{rater}` has {len(left)} still open: the same command goes on from there")
    else:
        say(f"`{rater}` has rated everything")
        if not state.missing:
            say(f"Next: ablation blind unseal {found.options}")
    raise typer.Exit(int(code))
