"""From what stands in an address to the rollouts that it names: filters, an order, a page, pairs of two arms.

Every value goes to the database as a parameter; names of columns come from the lists here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from ablation.errors import UsageError
from ablation.view.index import Index

PAGE = 50
"""Rollouts on a page."""
SHOWN = (
    *("id", "family", "arm", "stage", "problem", "effort", "idx", "tokens", "thinking", "correct", "truncated", "looping"),
    *("loop_length", "loop_period", "repeated", "logprob", "entropy", "status", "extracted", "reason", "seed"),
    *("folder", "part", "part_row"),
)
FLAGS = {
    "looping": "looping",
    "periodic": "periodic loop",
    "strong": "strong loop",
    "truncated": "truncated",
    "correct": "correct",
    "finished": "finished",
}
"""Column -> its name for people."""
SORTS = {
    "order": "stored order",
    "tokens": "length",
    "thinking": "thinking length",
    "loop_length": "length of the loop",
    "repeated": "repeated share",
    "logprob": "logprob",
    "entropy": "entropy",
}
ONE_OF = ("family", "arm", "stage", "problem", "effort", "source")
"""Columns that a filter compares with one value."""
WHERE = {"": "thinking or answer", "thinking": "thinking", "answer": "answer"}
_LONGEST = 200
_MOST = 10**12


@dataclass(frozen=True)
class Filter:
    """What is asked for. An empty text, and None, ask for nothing."""

    one_of: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)
    graded: str = ""
    """`none`: rollouts that no grader has looked at."""
    least: int | None = None
    most: int | None = None
    text: str = ""
    within: str = ""
    without: str = ""
    """Another arm: rollouts whose partner there lacks the flag `differs`."""
    differs: str = "looping"
    sort: str = "order"
    up: bool = True
    after: tuple[float | None, int] | None = None
    """The sorting value and id of the row before the page."""
    before: bool = False
    """`after` is the row behind the page."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filter:
        """Raises `UsageError` for what is no filter."""
        flags = {name: said == "yes" for name in FLAGS if (said := query.get(name, "")) in ("yes", "no")}
        sort = query.get("sort") or ("tokens" if query.get("without") else "order")
        if sort not in SORTS:
            raise UsageError(f"`{sort[:40]}` is nothing to sort by", hint=f"There are: {', '.join(SORTS)}.")
        differs = query.get("differs") or "looping"
        if differs not in FLAGS:
            raise UsageError(f"`{differs[:40]}` is nothing that two arms can differ in", hint=f"There are: {', '.join(FLAGS)}.")
        cursor, before = query.get("before") or query.get("after") or "", "before" in query
        up = query.get("dir", "up" if sort in ("order", "logprob") else "down") == "up"
        return cls(
            {name: value for name in ONE_OF if (value := query.get(name, "")[:_LONGEST])},
            flags,
            "none" if query.get("correct") == "none" else "",
            _number(query, "least"),
            _number(query, "most"),
            query.get("text", "")[:_LONGEST],
            query.get("within", "") if query.get("within", "") in WHERE else "",
            query.get("without", "")[:_LONGEST],
            differs,
            sort,
            up,
            _cursor(cursor) if cursor else None,
            before,
        )

    def query(self, **changes: Any) -> str:
        """The same as part of an address, with `changes`; a page is kept only where `changes` name it."""
        values: dict[str, Any] = dict(self.one_of) | {name: "yes" if on else "no" for name, on in self.flags.items()}
        values |= {"correct": "none"} if self.graded else {}
        values |= {"least": self.least, "most": self.most, "text": self.text, "within": self.within}
        values |= {"without": self.without, "differs": self.differs} if self.without else {}
        values |= {"sort": self.sort, "dir": "up" if self.up else "down"}
        return urlencode({name: value for name, value in (values | changes).items() if value not in (None, "")})


@dataclass(frozen=True)
class Page:
    """What a filter finds."""

    rows: list[dict[str, Any]]
    count: int
    """Of all pages."""
    next: str | None
    previous: str | None


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 20 or int(text) > _MOST:
        raise UsageError(f"`{text[:40]}` is no number of tokens", hint="A whole number.")
    return int(text)


def _cursor(text: str) -> tuple[float | None, int]:
    value, _, number = text.rpartition("_")
    try:
        found = (None if value == "none" else float(value)), int(number[:20])
        if abs(found[1]) > _MOST:
            raise ValueError
        return found
    except ValueError:
        raise UsageError("this page is not there", hint="Go to the first one.") from None


def find(index: Index, asked: Filter, sealed: list[str]) -> Page:
    """The rollouts that `asked` names. `sealed`: folders that nobody may look into now."""
    source, clauses, values = _from(index, asked, sealed)
    where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
    column = "id" if asked.sort == "order" else f'"{asked.sort}"'
    up, rest = asked.up != asked.before, ""
    if asked.after is not None:
        value, number = asked.after
        end, sign = "infinity" if asked.up else "-infinity", ">" if up else "<"
        key = f"coalesce({column}::DOUBLE, '{end}'::DOUBLE)"  # what has no value comes last
        rest = f" WHERE {key} {sign} $last OR ({key} = $last AND id {sign} $number)"
        values = values | {"last": float(end) if value is None else value, "number": number}
    direction, nulls = "ASC" if up else "DESC", "FIRST" if asked.before else "LAST"
    columns = [f'a."{name}"' for name in SHOWN] + ([f'b."{name}" AS b_{name}' for name in PARTNER] if asked.without else [])
    # One query for page and count, so that texts are looked through once.
    found = index.sql(
        f"WITH found AS MATERIALIZED (SELECT {', '.join(columns)} FROM {source}{where}) "
        f"SELECT *, (SELECT count(*) FROM found) FROM found{rest} "
        f"ORDER BY {column} {direction} NULLS {nulls}, id {direction} LIMIT {PAGE + 1}",
        values,
    )
    count = found[0][-1] if found else 0
    more, found = len(found) > PAGE, [row[:-1] for row in found[:PAGE]]
    if asked.before:
        found.reverse()
    names = [*SHOWN, *(f"b_{name}" for name in PARTNER)] if asked.without else list(SHOWN)
    rows = [dict(zip(names, row, strict=True)) for row in found]
    forward = (more or asked.before) if not asked.before else True
    backward = more if asked.before else asked.after is not None
    return Page(
        rows,
        count,
        asked.query(after=_at(rows[-1], asked.sort)) if rows and forward else None,
        asked.query(before=_at(rows[0], asked.sort)) if rows and backward else None,
    )


PARTNER = ("arm", "stage", "tokens", "correct", "truncated", "looping", "loop_length", "seed", "status")
"""What is shown of the other arm's rollout."""


def _at(row: Mapping[str, Any], sort: str) -> str:
    value = row["id"] if sort == "order" else row[sort]
    return f"{'none' if value is None else repr(float(value))}_{row['id']}"


def _from(index: Index, asked: Filter, sealed: list[str]) -> tuple[str, list[str], dict[str, Any]]:
    """(tables, conditions, their values). `a` is the rollout that is looked for, `b` its partner in another arm."""
    source, clauses, values = "rollouts a", [], {}
    for name, value in asked.one_of.items():
        if name == "stage" and asked.without:
            clauses.append(_stage_of("a"))
        else:
            clauses.append(f'a."{name}" = ${name}')
        values[name] = value
    for name, on in asked.flags.items():
        clauses.append(f'a."{name}" = {str(on).lower()}')
    if asked.graded:
        clauses.append("a.correct IS NULL")
    if asked.least is not None:
        clauses.append("a.tokens >= $least")
        values["least"] = asked.least
    if asked.most is not None:
        clauses.append("a.tokens <= $most")
        values["most"] = asked.most
    if sealed:
        clauses.append("a.folder NOT IN (SELECT unnest($sealed))")
        values["sealed"] = sealed
    if asked.without:
        source += (
            " JOIN rollouts b ON a.family = b.family AND a.pair = b.pair AND a.problem = b.problem AND a.effort = b.effort "
            "AND a.idx = b.idx AND a.id <> b.id"
        )
        if sealed:  # a comparison would tell of the partner
            clauses.append("b.folder NOT IN (SELECT unnest($sealed))")
        clauses += ["b.arm = $without", f'a."{asked.differs}"', f'NOT b."{asked.differs}"']
        values["without"] = asked.without
        same = "(a.stage = b.stage OR a.stage = 'sweep' OR b.stage = 'sweep')"
        clauses.append(_stage_of("b") if "stage" in asked.one_of else same)
    if asked.text:
        parts = _parts(index, clauses, values, source)
        if not parts:
            return source, [*clauses, "false"], values
        columns = ("thinking_text", "answer_text") if not asked.within else (f"{asked.within}_text",)
        hit = " OR ".join(f"contains(lower({one}), $text)" for one in columns)
        source += (
            " JOIN (SELECT f.folder, f.part, s.file_row_number AS number "
            "FROM read_parquet($paths, filename = true, file_row_number = true, hive_partitioning = false) s "
            "JOIN (SELECT unnest($paths) AS path, unnest($folders) AS folder, unnest($parts) AS part) f "
            f"ON s.filename = f.path WHERE {hit}) t ON t.folder = a.folder AND t.part = a.part AND t.number = a.part_row"
        )
        paths = [str(index.run.root / folder / part) for folder, part in parts]
        values |= {"paths": paths, "folders": [folder for folder, _ in parts], "parts": [part for _, part in parts]}
        values |= {"text": asked.text.lower()}
    return source, clauses, values


def _stage_of(table: str) -> str:
    """The stage that is asked for, or what the starting model has in its place."""
    return f"({table}.stage = $stage OR ({table}.arm = 'start' AND {table}.stage = 'sweep' AND $stage IN ('readout', 'sweep')))"


def _parts(index: Index, clauses: list[str], values: dict[str, Any], source: str) -> list[tuple[str, str]]:
    """(folder, name) of parts that can hold what is looked for."""
    where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
    found = index.sql(f"SELECT DISTINCT a.folder, a.part FROM {source}{where}", values)
    return sorted((folder, part) for folder, part in found)


def choices(index: Index) -> dict[str, list[str]]:
    """Each column of `ONE_OF` -> its values, problems left out where there are many."""
    version = index.version
    if index.choices is not None and index.choices[0] == version:
        return index.choices[1]
    found: dict[str, list[str]] = {}
    for name in ONE_OF:
        values = [row[0] for row in index.sql(f'SELECT "{name}" FROM rollouts GROUP BY 1 ORDER BY 1 LIMIT 2001')]
        found[name] = [] if len(values) > 2000 else values
    found["stage"].sort(key=_stage_order)
    found["arm"].sort(key=lambda arm: (arm != "start", list(index.plan.arms).index(arm) if arm in index.plan.arms else 999, arm))
    index.choices = (version, found)
    return found


def _stage_order(stage: str) -> tuple[int, int, str]:
    name, _, number = stage.rpartition("-")
    kind = {"sweep": 0, "update": 1, "readout": 2, "check": 3}.get(name or stage, 4)
    return (kind, int(number) if number.isdecimal() else 0, stage)
