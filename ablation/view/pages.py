"""What each address answers with. A page is one function: from a request to a template's name and its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ablation.errors import AblationError, UsageError
from ablation.report.arm_words import arm_in_words
from ablation.study.runlock import runner_at_work
from ablation.view import query, rollout, tables
from ablation.view.jobs import Jobs, state_of
from ablation.view.library import Library, Study, damaged
from ablation.view.progress import progress

ROWS_WAIT = 0.25
"""Seconds that a page waits for rollouts that are being read; it shows what is there, and that more will come."""

_WHOLE = (*query.SHOWN, "pair", "loop_start", "source", "strong", "periodic", "cjk")
_COLUMNS = ", ".join(f'"{one}"' for one in _WHOLE)


@dataclass
class Viewer:
    """All that pages need."""

    library: Library
    jobs: Jobs = field(default_factory=Jobs)

    # Every method: (template, values). `asked`: the address's query.

    def studies(self, asked: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        found = []
        for study in self.library.studies():
            why = damaged(study)
            row: dict[str, Any] = {"name": study.name, "damaged": why}
            if why is None:
                row |= self._verdict(study, 0)
                plan = study.locked.plan
                row |= {"question": plan.question, "arms": list(plan.arms), "families": list(plan.families)}
                row["worker"] = runner_at_work(study.root)
            found.append(row)
        return "studies", {"studies": found, "place": str(self.library.place), "title": "Studies"}

    def study(self, name: str, asked: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        study = self.library.study(name)
        locked = study.locked
        study.index.look()
        arms = [{"name": arm, "words": arm_in_words(one, locked.plan.training)} for arm, one in locked.plan.arms.items()]
        values = {"locked": locked, "arms": arms, "now": progress(study)}
        return "study", self._of(study, "overview") | values | self._verdict(study)

    def _verdict(self, study: Study, wait: float = 0.3) -> dict[str, Any]:
        """The labels of a run that has a `verdict.json`, by its rollouts: what that file says is only held against them.

        `verdict` is None where there is none yet, `differs` says why or what is wrong, `asked` whether the file is there.
        """
        asked = study.run.verdict.is_file()
        verdict, differs = None, ""
        try:
            found = self._computed(study, wait) if asked else None
            verdict, differs = (found["json"], found["stored_differs"]) if found else (None, "")
        except AblationError as error:
            differs = " ".join(error.lines()).replace(str(study.root), study.name)
        return {"asked": asked, "verdict": verdict, "differs": differs}

    def _computed(self, study: Study, wait: float = 0.3) -> dict[str, Any] | None:
        """`tables.verdict_page`, None while it is being computed."""
        return self.jobs.get(("verdict", study.root), state_of(study.root), lambda: tables.verdict_page(study), wait)

    def live(self, name: str, asked: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        study = self.library.study(name)
        return "live", {"study": study.name, "now": progress(study)}

    def curves(self, name: str, asked: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        from ablation.view.figures import curve_page

        study = self.library.study(name)
        found = self.jobs.get(("curves", study.root), state_of(study.root), lambda: curve_page(study))
        return "curves", self._of(study, "curves") | {"found": found}

    def audit(self, name: str, asked: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        from ablation.view.figures import weights_figure

        study = self.library.study(name)
        arms = tables.audits(study)
        drawn = self.jobs.get(("weights", study.root), state_of(study.root), lambda: weights_figure(study))
        return "audit", self._of(study, "audit") | {"arms": arms, "drawn": drawn}

    def rules(self, name: str, asked: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        study = self.library.study(name)
        return "rules", self._of(study, "rules") | {"found": self._computed(study)}

    def rollouts(self, name: str, asked: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        study = self.library.study(name)
        far = study.index.look(ROWS_WAIT)
        wanted = query.Filter.of(asked)
        values = {
            "asked": wanted,
            "want": {name: wanted.one_of.get(name, "") for name in query.ONE_OF},
            "page": query.find(study.index, wanted, study.sealed_folders()),
            "choices": query.choices(study.index),
            "far": far,
            "sealed": study.sealed_reads(),
            "flags": query.FLAGS,
            "sorts": query.SORTS,
            "within": query.WHERE,
            "control": study.locked.plan.verdict.replication.control,
            "loops": study.locked.plan.loops,
        }
        return "rollouts", self._of(study, "rollouts") | values

    def rollout(self, name: str, asked: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        study = self.library.study(name)
        row = self._row(study, asked)
        by = "weight" if asked.get("by") == "weight" else "logprob"
        shown = rollout.show(study, row, first=_whole(asked, "from"), by=by)
        partners = self._partners(study, row)
        values = {"shown": shown, "row": row, "by": by, "partners": partners, "gold": rollout.gold(study, row)}
        values |= {
            "window": rollout.WINDOW,
            "folded": not (row["looping"] or {"from", "by"} & set(asked)),
            "steps": rollout.LOGPROB_STEPS,
            "key": _key(row),
            "loops": study.locked.plan.loops,
        }
        return "rollout", self._of(study, "rollouts") | values

    def compare(self, name: str, asked: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        study = self.library.study(name)
        left = self._row(study, asked)
        partners = self._partners(study, left)
        other = asked.get("with", "")
        right = next((one for one in partners if f"{one['arm']}:{one['stage']}" == other), None)
        if right is None and partners:
            wanted = [one for one in partners if one["arm"] == other] or partners
            right = wanted[0]
        if right is None:
            raise UsageError("no other arm has a rollout of this cell and index", hint="Look at it alone.")
        by = "weight" if asked.get("by") == "weight" else "logprob"
        sides = [rollout.show(study, one, first=_whole(asked, "from"), by=by) for one in (left, right)]
        values = {"sides": sides, "partners": partners, "by": by, "key": _key(left), "with_": f"{right['arm']}:{right['stage']}"}
        values |= {"gold": rollout.gold(study, left), "steps": rollout.LOGPROB_STEPS, "same_seed": left["seed"] == right["seed"]}
        values |= {"loops": study.locked.plan.loops}
        return "compare", self._of(study, "rollouts") | values

    def _row(self, study: Study, asked: Mapping[str, str]) -> dict[str, Any]:
        """The rollout that an address names. Raises `UsageError` if there is none, or it must not be looked at now."""
        index = _whole(asked, "index")
        key = [asked.get(one, "") for one in ("family", "arm", "stage", "problem", "effort")]
        far = study.index.look(ROWS_WAIT)
        where = "family = ? AND arm = ? AND stage = ? AND problem = ? AND effort = ? AND idx = ?"
        found = study.index.sql(f"SELECT {_COLUMNS} FROM rollouts WHERE {where}", [*key, -1 if index is None else index])
        if not found:
            hint = "Look for it among the rollouts." if far.whole else "Rollouts are still being read: try again in a moment."
            raise UsageError(f"there is no such rollout in {study.name}", hint=hint)
        row = dict(zip(_WHOLE, found[0], strict=True))
        if row["folder"] in study.sealed_folders():
            raise UsageError(
                "this rollout is part of a blinded read that was not opened yet, so nobody looks at it here",
                hint="`ablation blind unseal` opens it when every rating is in.",
            )
        return row

    def _partners(self, study: Study, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rollouts of the same cell and index in other arms, those of the same stage first; none that must not be looked at."""
        where = "family = ? AND pair = ? AND problem = ? AND effort = ? AND idx = ? AND id <> ?"
        key = [row[name] for name in ("family", "pair", "problem", "effort", "idx", "id")]
        arms = ["start", *study.locked.plan.arms]
        found = study.index.sql(f"SELECT {_COLUMNS} FROM rollouts WHERE {where}", key)
        sealed = set(study.sealed_folders())
        rows = [one for one in (dict(zip(_WHOLE, one, strict=True)) for one in found) if one["folder"] not in sealed]
        place = {arm: at for at, arm in enumerate(arms)}
        return sorted(rows, key=lambda one: (one["stage"] != row["stage"], place.get(one["arm"], 99), one["stage"]))

    def _of(self, study: Study, tab: str) -> dict[str, Any]:
        return {"study": study.name, "tab": tab, "title": study.name, "many": not self.library.single}


def _whole(asked: Mapping[str, str], name: str) -> int | None:
    text = asked.get(name, "")
    return int(text[:12]) if text.isdecimal() else None


def _key(row: Mapping[str, Any]) -> dict[str, Any]:
    """What names a rollout in an address."""
    key = {name: row[name] for name in ("family", "arm", "stage", "problem", "effort")}
    return key | {"index": row["idx"]}
