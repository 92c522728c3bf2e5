"""The application: addresses, the guard before them, and a page for whatever goes wrong."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ablation.errors import AblationError, IntegrityError, UsageError
from ablation.report.safe import one_line
from ablation.view import render
from ablation.view.guard import Guard
from ablation.view.library import Library
from ablation.view.pages import Viewer
from ablation.view.reads import Reads

TABS = ("curves", "audit", "rules", "rollouts", "rollout", "compare", "live")
UNREADABLE = (OSError, MemoryError, duckdb.Error, pa.ArrowException)
"""What a folder that somebody else changes can raise while a page of it is made."""


def create_app(library: Library, *, only_reads: bool = False, **guard: Any) -> Guard:
    """The guarded application. `only_reads`: there is nothing but blinded reads, for raters who must not meet the rollouts.
    `guard`: see `Guard`.
    """
    viewer, reads = Viewer(library), Reads(library)
    routes = [Route("/static/{name}", _static), *_read_routes(reads)]
    if only_reads:
        routes.append(Route("/", lambda request: RedirectResponse("/read", 303)))
    else:
        routes += [Route("/", _home(viewer)), Route("/studies", _page(lambda request: viewer.studies(request.query_params)))]
        routes.append(Route("/study/{name}", _page(lambda one: viewer.study(one.path_params["name"], one.query_params))))
        for tab in TABS:
            routes.append(Route(f"/study/{{name}}/{tab}", _page(_tab(viewer, tab))))
    return Guard(Starlette(routes=routes, exception_handlers={404: _nothing, 405: _nothing, Exception: _bug}), **guard)


def _home(viewer: Viewer) -> Callable[[Request], Response]:
    def home(request: Request) -> Response:
        if viewer.library.single:
            return RedirectResponse(f"/study/{quote(viewer.library.studies()[0].name, safe='')}", 303)
        return _page(lambda one: viewer.studies(one.query_params))(request)

    return home


def _tab(viewer: Viewer, tab: str) -> Callable[[Request], tuple[str, dict[str, Any]]]:
    return lambda request: getattr(viewer, tab)(request.path_params["name"], request.query_params)


def _page(make: Callable[[Request], tuple[str, dict[str, Any]]]) -> Callable[[Request], Response]:
    """An address that answers with a page; what is expected to go wrong has a page of its own."""

    def answer(request: Request) -> Response:
        try:
            name, values = make(request)
            return HTMLResponse(render.page(name, **values))
        except AblationError as error:
            return wrong(error)
        except UNREADABLE as error:  # a run can be moved, changed or deleted while a page of it is made
            print(one_line(f"{request.url.path}: {type(error).__name__}: {error}"), file=sys.stderr)
            text = "The run folder was changed while this page was made, or cannot be read."
            return wrong(IntegrityError(text, hint="Load it again; the terminal says what could not be read."))

    return answer


def wrong(error: AblationError) -> Response:
    """The page of an error that somebody can cause or meet."""
    status = 404 if isinstance(error, UsageError) else 409
    return HTMLResponse(render.page("wrong", title="Not shown", message=error.message, hint=error.hint), status)


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in render.STATIC:
        return _nothing(request, None)
    return Response(render.static(name), media_type=render.STATIC[name])


def _nothing(request: Request, error: Any) -> Response:
    status = getattr(error, "status_code", 404)
    page = render.page("wrong", title="No such page", message="There is no such page.", hint=None)
    return HTMLResponse(page, status)


def _bug(request: Request, error: Exception) -> Response:
    """A bug of ours: the terminal has the traceback, the page has none."""
    traceback.print_exception(error, file=sys.stderr)
    text = "This page could not be made: a bug of this program."
    return HTMLResponse(render.page("wrong", title="A bug", message=text, hint="The terminal that runs it says more."), 500)


def _read_routes(reads: Reads) -> list[Route]:
    return [
        Route("/read", reads.all_reads),
        Route("/read/{number}", reads.one, methods=["GET"]),
        Route("/read/{number}", reads.answer, methods=["POST"]),
    ]
