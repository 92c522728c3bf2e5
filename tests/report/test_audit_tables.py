"""The tables of an audit, from audits that somebody edited."""

import io
import itertools
import json

from ablation.errors import IntegrityError
from ablation.report.audit_tables import audit_content, audit_page
from ablation.report.terminal import plain_console
from ablation.training.run_audit import audit_run
from tests.training.run_folder import forget_digests, write_run

HOSTILE = [None, "x", [1], 10**400, -1, 1e308, "gone"]


def fields(value, before=()):
    """The path of every value in a tree of JSON."""
    for key, below in value.items() if isinstance(value, dict) else ():
        yield (*before, key)
        if key != "by_effort":  # of the same form as `by_source`
            yield from fields(below, (*before, key))


def test_an_audit_with_any_field_changed_is_refused_or_shown_but_never_breaks_the_command(tmp_path):
    locked, run = write_run(tmp_path)
    forget_digests(run, locked)
    path = run.audit("main", "XK", 2)
    whole = path.read_bytes()
    refused = 0
    for place, value in list(itertools.product(fields(json.loads(whole)), HOSTILE))[::3]:
        audit = part = json.loads(whole)
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = value
        if value == "gone":
            del part[place[-1]]
        path.write_text(json.dumps(audit))
        try:
            found = audit_run(run.root, locked, families=["main"], arms=["XK"])
        except IntegrityError as error:
            assert str(path) in error.message
            refused += 1
            continue
        content = audit_content(found, locked.plan, "run")
        json.dumps(content, allow_nan=False)
        plain_console(file=io.StringIO(), width=80).print(audit_page(content, detail=True))
    assert refused > 60  # most of them are no audits any more
