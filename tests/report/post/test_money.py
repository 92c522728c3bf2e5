"""Money by the plan's prices, by hand: device hours of a run on devices, tokens of one at a training service."""

from __future__ import annotations

import json
import shlex
from decimal import Decimal

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.plan.prices import Prices, Tokens
from ablation.report.post import latex, markdown
from ablation.report.post.cost import Device, device_of, run_cost, run_money, services_of
from tests.audit.build import make_run
from tests.report.post.made import report_of, study_of, words
from tests.verdict.study import lock_small, start_run, write_stage

PRICES = {"currency": "EUR", "device_hour": {"any": 0.36}, "million_tokens": {"prefill": 2, "sample": 5, "train": 10}}
LOADED = {"event": "model_loaded", "environment": {"accelerator": "NVIDIA H200", "accelerators": 8, "cpu": "Xeon", "threads": 4}}


def money_of(events, root=None, **prices):
    given = Prices.model_validate(PRICES | prices)
    return run_money(given, run_cost(events, services_of(root, events)), events, root)


def test_every_device_that_a_run_had_is_paid_for():
    """8 H200 for 450.5 s are 3,604 s: 3,604 / 3600 x 2.5 = 2.502777...; the CPU for 90 s at 0.04: 0.001."""
    events = [
        LOADED,
        {"event": "stage_sampled", "stage": "main/start/sweep", "rollouts": 10, "tokens": 100, "seconds": 400.25},
        {"event": "update_trained", "arm": "main/C", "update": 1, "tokens": 40, "seconds": 50.25},
        {"event": "model_loaded", "environment": {"accelerator": None, "accelerators": 0, "cpu": "Xeon", "threads": 1}},
        {"event": "stage_sampled", "stage": "main/C/readout", "rollouts": 10, "tokens": 100, "seconds": 90},
        {"event": "stage_imported", "stage": "main/N/readout", "rollouts": 8, "tokens": 80},
    ]
    found = money_of(events, device_hour={"h200": 2.5, "cpu": 0.04})
    assert [(one.what, one.amount) for one in found.bill.charges] == [
        ("8 x NVIDIA H200", Decimal("2.502777778")),
        ("Xeon, 1 thread", Decimal("0.001")),
    ]
    assert found.bill.words == "2.50 EUR" and found.imported == 8 and not found.tokens
    unpriced = money_of(events, device_hour={"cpu": 0.04})
    assert unpriced.bill.words == "0.0010 EUR, without 8 x NVIDIA H200 (no price)"


def test_journals_of_before_name_one_device():
    assert device_of({"accelerator": "NVIDIA A10"}) == Device("NVIDIA A10", 1, True)
    assert device_of({"accelerator": "NVIDIA A10", "accelerators": 2}).words == "2 x NVIDIA A10"
    assert device_of({"accelerator": None, "accelerators": 0, "cpu": "Xeon", "threads": 2}) == Device("Xeon, 2 threads")


def test_the_seconds_of_a_command_count_once():
    """`update_trained` of an external arm repeats those of `command_ended`."""
    events = [
        LOADED,
        {"event": "command_ended", "arm": "main/E", "update": 1, "seconds": 100.0},
        {"event": "update_trained", "arm": "main/E", "update": 1, "seconds": 100.0},
    ]
    cost = run_cost(events)
    assert cost.devices == {"8 x NVIDIA H200": 100.0} and cost.kinds["training"].stages == 1


@pytest.fixture
def service(tmp_path):
    """A sweep and an update that a training service sampled: 24 rollouts behind prompts of 4 tokens, four each of p0 to p5, whose
    rollouts have 15 to 20 tokens: 4 x (15 + ... + 20) = 420."""
    locked = lock_small(tmp_path / "plans", prices=PRICES)
    run = start_run(tmp_path / "runs" / "small", locked)
    engine = {"engine": {"name": "tinker"}}
    write_stage(run, locked, "main", "start", {"clean": 24}, **engine)
    write_stage(run, locked, "main", "C", {"clean": 24}, folder=run.update("main", "C", 1), stage="update", update=1, **engine)
    events = [
        LOADED,
        {"event": "stage_sampled", "stage": "main/start/sweep", "rollouts": 24, "tokens": 400, "seconds": 60},
        {"event": "stage_sampled", "stage": "main/C/update-1", "rollouts": 24, "tokens": 420, "seconds": 60},
        {"event": "update_trained", "arm": "main/C", "update": 1, "trained_tokens": 500, "scored_tokens": 1032, "seconds": 30},
    ]
    return run.root, events


def test_a_service_is_paid_by_the_tokens_that_are_there(service):
    """Two stages of 96 tokens of prompts and 420 sampled ones (the sweep was interrupted, so its event has fewer): prefill 192 +
    1,032 scored, sample 840, train 500. 1,224 x 2 + 840 x 5 + 500 x 10 = 11,648 millionths."""
    root, events = service
    found = money_of(events, root)
    assert found.tokens == Tokens(1224, 840, 500) and found.bill.total == Decimal("0.011648")
    cost = run_cost(events, services_of(root, events))
    assert cost.held == {} and cost.service_seconds == 150 and cost.seconds == 150
    assert found.bill.words == "0.012 EUR" and found.upper == 0


def test_an_update_that_does_not_say_how_much_it_trained_on_is_counted_whole(service):
    root, events = service
    del events[-1]["trained_tokens"]
    found = money_of(events, root)
    assert found.tokens.train == 96 + 420 and found.upper == 1


def test_the_preflight_of_a_service_is_paid_for(service):
    root, events = service
    events[0] = {**LOADED, "preflight": {"tokens": {"prefill": 10, "sample": 20, "train": 30}}}
    assert money_of(events, root).tokens == Tokens(1234, 860, 530)
    for odd in ({"tokens": 7}, {"tokens": {"prefill": 10}}, {"tokens": {"prefill": 1, "sample": "2", "train": 3}}, "none"):
        events[0] = {**LOADED, "preflight": odd}
        assert money_of(events, root).tokens == Tokens(1224, 840, 500)


def test_workers_of_a_cluster_have_their_own_devices():
    """Two workers tell in turn: 100 s on two GPUs of one kind, 60 s on one of another."""
    loaded = {"event": "model_loaded", "environment": {"accelerator": "NVIDIA H200", "accelerators": 2}, "worker": "a:1"}
    other = {"event": "model_loaded", "environment": {"accelerator": "NVIDIA A10", "accelerators": 1}, "worker": "b:2"}
    events = [
        loaded,
        other,
        {"event": "stage_sampled", "stage": "main/C/update-1", "seconds": 70, "worker": "a:1"},
        {"event": "stage_sampled", "stage": "main/N/update-1", "seconds": 60, "worker": "b:2"},
        {"event": "update_trained", "arm": "main/C", "update": 1, "seconds": 30, "worker": "a:1"},
    ]
    assert run_cost(events).devices == {"2 x NVIDIA H200": 100.0, "NVIDIA A10": 60.0}


def test_an_event_whose_stage_is_not_there_or_is_elsewhere_is_not_looked_for(service):
    root, events = service
    away = root.parent / "away"
    (root / "main" / "start" / "sweep").rename(away)
    events += [{"event": "stage_sampled", "stage": "../away", "rollouts": 24, "tokens": 420, "seconds": 1}]
    assert set(services_of(root, events)) == {"main/C/update-1"}


def test_the_report_says_what_was_spent(tmp_path, monkeypatch):
    """20 stages of a second each: 20 / 3600 x 0.36 = 0.002."""
    made = make_run(tmp_path, prices=PRICES)
    found = report_of(made.run.root, made.locked)
    text, row = words(found), "20 device seconds / 3,600 x 0.36 EUR"
    assert "What the run cost by the plan's own prices." in text and row in text and "0.0020 EUR" in text
    assert f"| {row} | 0.0020 EUR |" in markdown.markdown(found).replace("**", "")
    assert "0.0020 EUR" in latex.latex_files(found)["money.tex"]
    data = json.loads(json.dumps(study_of(made.run.root, made.locked).data()))["cost"]["money"]
    assert data["total"] == "0.002000000" and data["charges"][0]["formula"] == row
    monkeypatch.chdir(tmp_path)
    [cell] = [cell for where, cell in found.traces() if where.startswith("money: a device")]
    assert cell.trace.how == row
    printed = CliRunner().invoke(app, shlex.split(cell.trace.command)[1:])
    assert json.loads(printed.stdout) == cell.text == "0.0020 EUR"


def test_the_report_says_what_has_no_price(tmp_path):
    made = make_run(tmp_path, prices={"currency": "EUR", "million_tokens": {"sample": 1}})
    text = words(report_of(made.run.root, made.locked))
    assert "The plan has no price for a device that the journal does not name: not counted." in text
    assert "not known: no price for a device that the journal does not name" in text


def test_a_plan_without_prices_says_so(tmp_path):
    made = make_run(tmp_path)
    assert "The plan names no prices, so nothing is said in money." in words(report_of(made.run.root, made.locked))
    assert study_of(made.run.root, made.locked).data()["cost"]["money"] is None
