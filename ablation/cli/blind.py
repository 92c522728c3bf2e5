"""`ablation blind ...`: a read of answers by somebody who does not know whose they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ablation.cli.blind_rate import import_ratings, judge, rate
from ablation.cli.blind_run import JSON, KEY, PLAN, RUN, SET, SUBJECT, find_comparison, print_json
from ablation.cli.machine_options import Backend
from ablation.cli.say import say

if TYPE_CHECKING:
    from ablation.blind.leaks import Finding
    from ablation.blind.state import ReadState
    from ablation.cli.blind_run import BlindRun

app = typer.Typer(no_args_is_help=True, help="Answers read by somebody who does not know whose they are.")


@app.command()
def pairs(
    subject: SUBJECT,
    name: SET = "held-out",
    plan: PLAN = None,
    run: RUN = None,
    policy: Backend = None,
    key: KEY = None,
    as_json: JSON = False,
) -> None:
    """Choose the pairs by the plan's fixed rule (safety: take every answer), shuffle them, and seal which is whose.

    Texts that an opened read of the same set had before are told of as `known`: its raters cannot rate this one.
    Exit 6: the rollouts hold fewer pairs than the plan asks for; a smaller read is never made.
    """
    from ablation.blind.known import known
    from ablation.blind.seal import seal
    from ablation.files import remove_partial
    from ablation.report.blind_page import blind_page

    found = find_comparison(name, subject, plan, run, policy)
    with found.journal(check=True) as journal:
        remove_partial(found.folder.root)
        sealed = seal(found.folder, found.locked, key, blind_page, journal.events, journal.append)
        told = known(found.folder, sealed.built.batch, journal.events)
    batch, folder = sealed.built.batch, found.folder
    findings = [*sealed.findings, told, _times(found)]
    if as_json:
        digests = {"batch_sha256": batch.sha256, "key_sha256": sealed.built.key.commitment}
        paths = {"batch": str(folder.batch), "page": str(folder.page), "form": str(folder.form), "key": str(sealed.key)}
        print_json({"kind": batch.kind, "items": len(batch)} | digests | paths | {"leaks": [one.as_json() for one in findings]})
        return
    say(f"{len(batch)} {batch.kind} in {folder.batch}")
    say(f"for a rater elsewhere: {folder.page} and, if they have no browser, {folder.form}")
    say(f"sealed key: {sealed.key} (keep it from every rater; its SHA-256 is in the journal)")
    _tell_findings(findings)
    say(f"Next: ablation blind rate {found.options} --rater NAME")


@app.command()
def check(
    subject: SUBJECT,
    name: SET = "held-out",
    plan: PLAN = None,
    run: RUN = None,
    policy: Backend = None,
    key: KEY = None,
    as_json: JSON = False,
) -> None:
    """Look again for anything that tells a rater whose an answer is: ids, names, order, lengths, texts known from
    an opened read of the same set, times.

    Exit 3: batch, page or form is not what was sealed. Exit 4: something tells.
    """
    from ablation.blind.build import read_sides
    from ablation.blind.key import key_path, read_key
    from ablation.blind.known import known
    from ablation.blind.leaks import LEAK, leaks
    from ablation.errors import ExitCode

    found = find_comparison(name, subject, plan, run, policy)
    state, folder = found.state(check=True), found.folder
    place = folder.key if folder.key.is_file() else None
    if place is None and (key is not None or found.locked.path.resolve() != folder.run.plan.resolve()):
        place = key_path(found.locked, folder, key)
    sealed = read_key(place, state.commitment) if place is not None and (key is not None or place.is_file()) else None
    shown = {path.name: path.read_bytes() for path in (folder.batch, folder.page, folder.form) if path.is_file()}
    findings = leaks(folder, found.locked.plan, state.batch, read_sides(folder), sealed, shown)
    findings += [known(folder, state.batch, found.events_while_rated(state)), _times(found)]
    code = ExitCode.GATE if any(one.state == LEAK for one in findings) else ExitCode.DONE
    if as_json:
        print_json({"leaks": [one.as_json() for one in findings], "exit_code": int(code)})
    else:
        _tell_findings(findings)
    raise typer.Exit(int(code))


@app.command()
def status(
    subject: SUBJECT,
    name: SET = "held-out",
    plan: PLAN = None,
    run: RUN = None,
    policy: Backend = None,
    as_json: JSON = False,
) -> None:
    """Say how far the ratings are; nothing of what they say while the key is sealed."""
    found = find_comparison(name, subject, plan, run, policy)
    state = found.state(check=True)
    content = _status(state)
    if as_json:
        print_json(content)
        return
    say(f"{len(state.batch)} {state.batch.kind}, key {content['key']}")
    for rater, row in content["raters"].items():
        say(f"{rater} ({row['by']}): {row['rated']} of {row['asked']} rated, {row['unparsed']} replies that could not be read")
    for line in [*state.who_left, *state.missing]:
        say(line)
    if state.unsealed is None and not state.missing:
        say(f"Next: ablation blind unseal {found.options}")


@app.command()
def unseal(
    subject: SUBJECT,
    name: SET = "held-out",
    plan: PLAN = None,
    run: RUN = None,
    policy: Backend = None,
    key: KEY = None,
    as_json: JSON = False,
) -> None:
    """Open the key when every rating is in, and say what they come to. No rating is taken after that.

    Exit 6: a rating is missing, or so many replies could not be read that the read is undecided.
    """
    from ablation.blind import seal
    from ablation.blind.result import read_warnings
    from ablation.blind.tally import UNDECIDED
    from ablation.errors import ExitCode

    found = find_comparison(name, subject, plan, run, policy)
    found.state(check=True)
    with found.journal(check=True) as journal:
        from ablation.blind.state import read_state
        from ablation.study.deviations import take_up_deviations

        if found.locked.path.resolve() != found.folder.run.plan.resolve():
            take_up_deviations(found.folder.run, found.locked, journal)  # one may let a rater go
        state = read_state(found.folder, found.locked.plan, journal.events)
        content = seal.unseal(state, found.locked, key, journal.append)
        content = content | {"warnings": [*content.get("warnings", ()), *read_warnings(state, journal.events)]}
    code = ExitCode.INCOMPLETE if content.get("label") == UNDECIDED else ExitCode.DONE
    if as_json:
        print_json(content | {"exit_code": int(code)})
    else:
        _tell_result(content)
        say(f"key and result: {found.folder.key}, {found.folder.result}")
        say(f"Next: ablation verdict{found.of_run}")
    raise typer.Exit(int(code))


app.command("rate")(rate)
app.command("import")(import_ratings)
app.command("judge")(judge)


def _times(found: BlindRun) -> Finding:
    from ablation.blind.leaks import times

    return times(found.folder)


def _tell_findings(findings: list[Finding]) -> None:
    for one in findings:
        say(f"    {one.name:<8}{one.state}: {one.text}")


def _status(state: ReadState) -> dict[str, Any]:
    from ablation.blind.ratings import UNPARSED

    raters = {}
    for rater, one in state.ratings.items():
        asked = len(state.batch) * len(state.orders(one.by))
        raters[rater] = {
            "by": one.by,
            "asked": asked,
            "rated": sum(reply.values is not None for reply in one.replies),
            "open": len(state.open(rater)),
            "unparsed": sum(reply.status == UNPARSED for reply in one.replies),
        }
    return {
        "kind": state.batch.kind,
        "items": len(state.batch),
        "key": "sealed" if state.unsealed is None else "opened",
        "raters_needed": state.settings.raters,
        "raters": raters,
        "left": dict(state.left),
        "missing": state.missing,
    }


def _tell_result(content: dict[str, Any]) -> None:
    from ablation.report.numbers import with_sign

    if "counts" in content:
        for model, categories in content["counts"].items():
            for category, counts in categories.items():
                say(f"{model}, {category}: {', '.join(f'{count} {label}' for label, count in counts.items())}")
        _tell_warnings(content)
        return
    say(f"Blinded read: {content['label']}: {'; '.join(one['text'] for one in content['reasons'])}")
    for rater, row in content["raters"].items():
        say(
            f"{rater}: {row['passes']} of {row['rated']} pass; same answer {row['same_answer']}, method {row['same_method']}, "
            f"checks missing: subject {row['missing_checks']['subject']}, start {row['missing_checks']['reference']}"
        )
        if "disagreed" in row:
            say(f"    the two orders differ in {row['disagreed']['pairs']} of {row['rated']} pairs, which count as no pass")
    for names, kappas in content["kappa"].items():
        shown = ", ".join(f"{name} {'undefined' if one is None else f'{one:.2f}'}" for name, one in kappas.items())
        say(f"kappa of {names}: {shown}")
    if content["left_out"]:
        say(f"left out, without a rating that could be read: {', '.join(map(str, content['left_out']))}")
    for band in content["lengths"]["bands"]:
        say(f"{band['band']} pairs ({band['from']} to {band['to']} characters): {band['passes']} of {band['pairs']} pass")
    r = content["lengths"]["correlation"]
    say(f"correlation of being the subject with length: {'undefined' if r is None else with_sign(r, 2)}")
    _tell_warnings(content)


def _tell_warnings(content: dict[str, Any]) -> None:
    for line in content["warnings"]:
        say(f"warning: {line}", err=True)
