"""Reports of small runs that are made by the real code: what tests of the report begin with."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from ablation.plan.lock import LockedPlan
from ablation.power.guards import with_false_alarms
from ablation.report.post.build import NOT_WANTED, document
from ablation.report.post.document import Document
from ablation.report.post.study import Study, study_of_run
from ablation.report.post.traces import Traces
from ablation.rollouts.journal_chain import check_journal
from ablation.verdict.run import judge_run

VOID = {"meta", "br", "hr", "img", "link", "input"}


def study_of(root: Path, locked: LockedPlan, options: str | None = "") -> Study:
    """As `ablation report` gathers it, without the simulation before the lock."""
    found = judge_run(root, locked, options)
    if "release" in found.sections and found.sections["release"].compared:
        found = with_false_alarms(found, locked.plan)
    return study_of_run(root, locked, found, check_journal(root, locked.digest).events, Traces("runs/small"))


def report_of(root: Path, locked: LockedPlan, options: str | None = "") -> Document:
    return document(study_of(root, locked, options), locked, None, NOT_WANTED)


def words(found: Document) -> str:
    """Everything that the report says, as plain text."""
    from ablation.report.post.html import html

    page = Page()
    page.feed(html(found))
    return " ".join(" ".join(page.text).split())


class Page(HTMLParser):
    """An HTML page taken apart; raises for tags that do not close."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> after {self.open}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def numbers_of(text: str) -> list[tuple[float, int]]:
    """(number, its decimals) of every number that is printed in `text`."""
    found = re.findall(r"[-+]?[0-9][0-9,]*(?:\.[0-9]+)?", re.sub(r"(?<=[0-9])-(?=[0-9])", " ", text))
    return [(float(one.replace(",", "")), len(one.partition(".")[2])) for one in found]


def numbers_in(value: Any) -> list[float]:
    """Every number of a value out of JSON; of an estimate the number and its interval alone."""
    if isinstance(value, dict):
        return [number for name in ("value", "low", "high") for number in numbers_in(value.get(name))]
    if isinstance(value, list):
        return [number for one in value for number in numbers_in(one)]
    if isinstance(value, bool) or value is None:
        return []
    return [float(value)] if isinstance(value, (int, float)) else [number for number, _ in numbers_of(value)]


def differ(shown: str, values: list[Any], how: str) -> list[str]:
    """Numbers of `shown` that are none of `values` at the digits that are shown."""
    known = [number for value in values for number in numbers_in(value)]
    if how == "first minus second":
        known = [known[0] - known[1]]
    shown = re.sub(r"\([0-9]+%: ", "(", shown)  # the level of an interval
    unit = 100 if "%" in shown or how == "in %" else 1 / 3600 if "hours" in shown else 1
    missing = []
    for number, digits in numbers_of(shown):
        if not any(abs(number - unit * one) <= 0.5000001 * 10**-digits for one in known):
            missing.append(f"{number} is none of {known}")
    return missing
