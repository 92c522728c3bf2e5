"""Blinded reads in a browser: the questions of `ablation blind rate`, its checks, its file of ratings, and nothing that tells.

A read is a number, an item of it is whatever is open next: no address, header or page names a comparison, a model, a cell or a
file. What a page holds is the batch's own text and the questions. A rating is kept at once and never replaced; the key is opened
in the terminal alone.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ablation.blind.batch import LABEL_QUESTION, LABEL_WORDS, NEEDED_CHECK, NOT_TOLD, PAIR_QUESTIONS, PAIRS, Item
from ablation.blind.known import check_rater_is_blind
from ablation.blind.ratings import PERSON, Reply, check_open, check_rater, check_way
from ablation.blind.state import ReadState
from ablation.errors import AblationError, GateError, UsageError
from ablation.files import DiskError
from ablation.report.safe import one_line
from ablation.rollouts.blind_record import BlindFolder, blind_folders
from ablation.rollouts.journal_chain import read_journal
from ablation.study.blind_run import BlindRun, find_comparison
from ablation.view import render
from ablation.view.library import Library, Study, damaged

_BODY = 100_000
"""Bytes of a form."""
_FIELDS = 50
"""Fields of a form."""
_NOTE = 10_000
"""Characters of a note."""
_FORM_COOKIE, _RATER_COOKIE = "ablation_form", "ablation_rater"


class NotTaken(UsageError):
    """What a rater may be told; every other error is for the terminal, because it can name a comparison."""


class OldForm(NotTaken):
    """A form of another page, or of an earlier server."""


@dataclass(frozen=True)
class Sealed:
    """A read that was made, in the order in which all of them were."""

    number: int
    study: Study
    folder: BlindFolder
    kind: str
    items: int
    opened: bool
    sealing: str
    """SHA-256 of the event that sealed it."""

    @property
    def mark(self) -> str:
        """What stays this read's own when a run folder that comes or goes gives its number to another one."""
        return f"{self.study.root.resolve()}\n{self.sealing}"

    def run(self) -> BlindRun:
        return find_comparison(self.folder.name, self.folder.subject, None, self.study.root)


def sealed_reads(library: Library) -> list[Sealed]:
    """Every read whose batch is there, by the time of its sealing: a read keeps its number while no run folder comes or goes."""
    found = []
    for study in library.studies():
        if damaged(study) is not None:
            continue
        folders = blind_folders(study.run)
        try:
            events = read_journal(study.run.journal) if folders else []
        except AblationError:
            continue
        for folder in folders:
            sealing = folder.sealing(events)
            if sealing is not None and folder.batch.is_file():
                opened = bool(folder.events(events, "blind_unsealed"))
                found.append((sealing["time"], study, folder, sealing["kind"], sealing["items"], opened, sealing["sha256"]))
    found.sort(key=lambda one: (one[0], one[1].name, one[2].name, one[2].subject))
    return [Sealed(number, *one[1:]) for number, one in enumerate(found, start=1)]


class Reads:
    """The pages for raters."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._secret = secrets.token_bytes(32)

    def all_reads(self, request: Request) -> Response:
        rows = [{"number": one.number, "kind": one.kind, "items": one.items, "opened": one.opened} for one in self._sealed()]
        return self._page(request, "reads", reads=rows)

    def one(self, request: Request) -> Response:
        """The next open item of the rater, or how to begin, or that all is done."""
        try:
            return self._one(request, self._find(request))
        except (AblationError, OSError) as error:
            return self._wrong(request, error)

    async def answer(self, request: Request) -> Response:
        """What a form says."""
        data = b""
        try:
            async for piece in request.stream():
                data += piece
                if len(data) > _BODY:
                    return self._wrong(request, NotTaken("this form is too long, so nothing of it was kept"))
        except ClientDisconnect:  # half a form, from a browser that is gone
            return Response(status_code=400)
        try:
            form = dict(parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_FIELDS))
        except ValueError:
            return self._wrong(request, NotTaken("this form has too many fields, so nothing of it was kept"))
        return await run_in_threadpool(self._answer, request, form)

    def _answer(self, request: Request, form: dict[str, str]) -> Response:
        try:
            if not _same(form.get("form", ""), self._form_key(request)):
                raise OldForm("this form is not of this page any more, so nothing was kept", hint="Load the page again.")
            sealed = self._find(request)
            what = form.get("what")
            if what == "begin":
                return self._begin(request, sealed, form)
            if what == "leave":
                return self._back(sealed, "", forget=True)
            rater = self._rater(request, sealed)
            if what != "rate" or rater is None:
                return self._back(sealed, rater or "")
            return self._rate(request, sealed, rater, form)
        except (AblationError, OSError) as error:
            return self._wrong(request, error)

    def _one(self, request: Request, sealed: Sealed, **more: Any) -> Response:
        rater = self._rater(request, sealed)
        if sealed.opened:
            return self._page(request, "read_end", number=sealed.number, rater=rater, done=0, items=sealed.items, opened=True)
        if rater is None:
            return self._page(request, "read_begin", **self._of(sealed), problem=None, name="")
        state = sealed.run().state()
        left = state.open(rater, PERSON)
        done = sealed.items - len(left)
        if not left:
            return self._page(request, "read_end", number=sealed.number, rater=rater, done=done, items=sealed.items, opened=False)
        item = state.batch.item(left[0][0])
        assert item is not None
        return self._item(request, sealed, rater, item, done, {}, None)

    def _begin(self, request: Request, sealed: Sealed, form: dict[str, str]) -> Response:
        name = form.get("rater", "").strip()
        problem = None
        try:
            check_rater(name)
        except UsageError as error:
            problem = " ".join(error.lines())
        if form.get("blinded") != "yes":
            problem = (
                problem or "Only somebody whom nobody told whose answers these are can rate them: tick the box if that is so."
            )
        if problem is None:
            problem = self._refused(sealed, name)
        if problem is not None:
            return self._page(request, "read_begin", status=400, **self._of(sealed), problem=problem, name=name[:40])
        return self._back(sealed, name)

    def _refused(self, sealed: Sealed, rater: str) -> str | None:
        """Why no rating of `rater` can be taken. Names of comparisons go to the terminal, not to the page."""
        found = sealed.run()
        try:
            self._check(found, found.state(check=True), rater)
        except AblationError as error:
            print(one_line(f"read {sealed.number}, rater {rater}: {' '.join(error.lines())}"), file=sys.stderr)
            return f"`{rater}` cannot rate this read. Whoever runs the study sees why in the terminal."
        return None

    def _check(self, found: BlindRun, state: ReadState, rater: str) -> None:
        """As `ablation blind rate` does."""
        check_open(found.folder, rater, state.settings.raters, [] if state.unsealed is None else [state.unsealed], state.left)
        check_rater_is_blind(found.folder, state.batch, rater, state.ratings, found.events())
        if rater in state.ratings:
            check_way(state.ratings[rater], PERSON, None)

    def _rate(self, request: Request, sealed: Sealed, rater: str, form: dict[str, str]) -> Response:
        found = sealed.run()
        state = found.state()
        self._check(found, state, rater)
        left = [number for number, _ in state.open(rater, PERSON)]
        number = int(said[:12]) if (said := form.get("item", "")).isdecimal() else 0
        item = state.batch.item(number)
        if item is None or number not in left:  # rated before: the form was sent twice
            return self._back(sealed, rater)
        values, note = _values(item, form), form.get("note", "").strip()
        open_ = [name for name in item.fields if name not in values]
        done = sealed.items - len(left)
        if open_ or len(note) > _NOTE:
            problem = f"{len(open_)} of {len(item.fields)} questions have no answer yet." if open_ else "This note is too long."
            return self._item(request, sealed, rater, item, done, form, problem, status=400)
        try:
            found.add(rater)([Reply(number, values, PERSON, note=note)])
        except UsageError:  # kept a moment ago, from another tab or in the terminal
            return self._back(sealed, rater)
        except (GateError, DiskError, OSError) as error:
            print(one_line(f"read {sealed.number}, rater {rater}: {error}"), file=sys.stderr)
            why = "the run is at work" if isinstance(error, GateError) else "the disk took nothing"
            problem = f"This could not be kept just now: {why}. Your answers are below; send them again."
            return self._item(request, sealed, rater, item, done, form, problem, status=503)
        return self._back(sealed, rater)

    def _item(
        self,
        request: Request,
        sealed: Sealed,
        rater: str,
        item: Item,
        done: int,
        form: dict[str, str],
        problem: str | None,
        status: int = 200,
    ) -> Response:
        values = self._of(sealed) | {"rater": rater, "item": item.number, "done": done, "prompt": item.prompt, "problem": problem}
        values |= {"sides": list(item.texts.items()), "questions": _questions(item), "said": form, "note": form.get("note", "")}
        return self._page(request, "read_item", status=status, **values)

    def _of(self, sealed: Sealed) -> dict[str, Any]:
        told = {"check": NEEDED_CHECK, "not_told": NOT_TOLD, "pairs": sealed.kind == PAIRS}
        return told | {"number": sealed.number, "items": sealed.items}

    def _sealed(self) -> list[Sealed]:
        return sealed_reads(self.library)

    def _find(self, request: Request) -> Sealed:
        said = request.path_params["number"]
        number = int(said) if said.isdecimal() and len(said) < 10 else 0
        found = next((one for one in self._sealed() if one.number == number), None)
        if found is None:
            raise NotTaken("there is no such read", hint="Look at the list of reads.")
        return found

    def _rater(self, request: Request, sealed: Sealed) -> str | None:
        """Who rates here, by the cookie that `_back` set."""
        name, _, seal = request.cookies.get(f"{_RATER_COOKIE}_{sealed.number}", "").partition(".")
        return name if name and _same(seal, self._seal(f"rater {sealed.mark} {name}")) else None

    def _seal(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()[:32]

    def _form_key(self, request: Request) -> str:
        """What a form of this browser must have: nobody else's page can know it."""
        return self._seal(f"form {request.cookies.get(_FORM_COOKIE, '')}")

    def _back(self, sealed: Sealed, rater: str, forget: bool = False) -> Response:
        answer = RedirectResponse("/read" if forget else f"/read/{sealed.number}", 303)
        name, path = f"{_RATER_COOKIE}_{sealed.number}", f"/read/{sealed.number}"
        if forget:
            answer.delete_cookie(name, path=path, httponly=True, samesite="strict")
        elif rater:
            value = f"{rater}.{self._seal(f'rater {sealed.mark} {rater}')}"
            answer.set_cookie(name, value, path=path, httponly=True, samesite="strict")
        return answer

    def _page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        known = request.cookies.get(_FORM_COOKIE, "")
        cookie = known if len(known) == 32 else secrets.token_hex(16)
        key = self._seal(f"form {cookie}")
        answer = HTMLResponse(render.page(template, form=key, title="Blinded read", **values), status)
        if cookie != known:
            answer.set_cookie(_FORM_COOKIE, cookie, path="/read", httponly=True, samesite="strict")
        return answer

    def _wrong(self, request: Request, error: AblationError | OSError) -> Response:
        """What went wrong, in the terminal; the page names no file."""
        lines = error.lines() if isinstance(error, AblationError) else [str(error)]
        print(one_line(f"{request.url.path}: {' '.join(lines)}"), file=sys.stderr)
        if not isinstance(error, NotTaken):
            text, hint = "This read cannot be shown now.", "Whoever runs the study sees why in the terminal."
            return self._page(request, "read_wrong", status=409, message=text, hint=hint)
        text = f"{error.message[0].upper()}{error.message[1:]}."
        return self._page(request, "read_wrong", status=409 if isinstance(error, OldForm) else 404, message=text, hint=error.hint)


def _same(one: str, other: str) -> bool:
    """Whether two texts are the same, in a time that does not tell; what came from outside may hold any letter."""
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())


def _questions(item: Item) -> list[dict[str, Any]]:
    if item.labels:
        choices = [{"value": label, "text": label, "words": LABEL_WORDS.get(label, "")} for label in item.labels]
        return [{"field": "label", "text": LABEL_QUESTION, "choices": choices}]
    yes_no = [{"value": "yes", "text": "yes", "words": ""}, {"value": "no", "text": "no", "words": ""}]
    return [{"field": name, "text": text, "choices": yes_no} for name, text in PAIR_QUESTIONS.items()]


def _values(item: Item, form: dict[str, str]) -> dict[str, Any]:
    """The answers that the form has."""
    found: dict[str, Any] = {}
    for name in item.fields:
        said: Any = form.get(name)
        if not item.labels:
            said = {"yes": True, "no": False}.get(said or "")
        if said is not None and item.fault(name, said) is None:
            found[name] = said
    return found
