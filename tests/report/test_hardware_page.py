"""Golden pages: after a change on purpose `UPDATE_GOLDEN=1 python -m pytest tests/report`, and read the difference."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.errors import UsageError
from ablation.plan.hardware import hardware
from ablation.plan.hardware_plan import OnHardware
from ablation.plan.load import load_plan
from ablation.report.hardware_page import hardware_page, hardware_summary
from ablation.report.terminal import Page, plain_console
from tests.plan.conftest import TEXT, write_plan

PLANS = Path(__file__).parents[2] / "plans"
GOLDEN = Path(__file__).parent / "golden"
OWN = "prices: {currency: EUR, device_hour: {h200: 2.5}, million_tokens: {prefill: 1.5, sample: 4.5, train: 5.25}}\n"


def page(path: Path, name: str, width: int = 80, config: str | None = None) -> str:
    loaded = load_plan(path)
    sizes = json.loads((PLANS / "tessera.config.json").read_text()) if config else {}
    found = OnHardware(loaded.plan, hardware(name, loaded.plan.policy.threads), sizes)
    out = io.StringIO()
    content = hardware_summary(loaded, found, config)
    plain_console(file=out, width=width, color_system=None).print(Page(hardware_page(found, content)), end="")
    return out.getvalue()


@pytest.fixture
def priced(tmp_path):
    path = tmp_path / "tessera.yaml"
    path.write_text((PLANS / "tessera.yaml").read_text() + OWN)
    return path


@pytest.mark.parametrize("name", ["h200x8", "tinker"])
def test_golden_pages(priced, name):
    text, golden = page(priced, name, config="tessera.config.json"), GOLDEN / f"hardware_{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("name", ["h200x8", "a10x1", "cpu", "tinker"])
@pytest.mark.parametrize("width", [60, 80, 140])
def test_nothing_is_wider_than_the_terminal(priced, name, width):
    text = page(priced, name, width)
    assert max(map(len, text.split("\n"))) <= width and "…" not in text


def test_what_does_not_fit_is_said(priced):
    text = " ".join(page(priced, "a10x1").split())
    assert "DOES NOT FIT: the trainer (most of it weights: 55.6 GB)." in text and "DOES NOT FIT: the sampler" in text
    assert "the plan does not say it" in text  # eight devices are not there
    assert "The plan has no price for NVIDIA A10: not counted." in text


def test_a_plan_without_prices_or_a_mean(tmp_path):
    text = page(write_plan(tmp_path), "cpu")
    assert "No money: the plan names no prices" in text and "no mean is known before the sweep" in text
    assert "assumed: the model's config.json is not at hand" in " ".join(text.split())


def run(*arguments: str):
    return CliRunner().invoke(app, ["plan", "show", *arguments])


def test_the_command_prints_the_page_and_the_data(priced):
    own = [str(priced), "--hardware", "h200x8", "--config", str(PLANS / "tessera.config.json")]
    shown = run(*own)
    assert shown.exit_code == 0 and "tessera on h200x8" in shown.stdout
    data = json.loads(run(*own, "--json", "--mean-tokens", "9000", "--assume", "decode_use=0.5").stdout)
    assert (data["mean_tokens"], data["mean_from"], data["assumed"]["decode_use"]) == (9000, "--mean-tokens", 0.5)
    assert data["sampler"]["tensor_parallel"] == 8 and data["memory"]["trainer"]["fits"] is True
    assert data["total"]["mean"]["money"]["currency"] == "EUR"
    assert sum(part["mean"]["device_hours"] for part in data["parts"]) == pytest.approx(
        data["total"]["mean"]["device_hours"], 0.01
    )
    assert [part["name"] for part in data["parts"]][:3] == ["sweep", "C", "N"]


def test_the_command_takes_the_config_that_is_at_hand():
    data = json.loads(run(str(PLANS / "quickstart.yaml"), "--hardware", "cpu", "--json").stdout)
    assert data["model"]["sizes_from"] == "package:tiny-reasoner/base/config.json"


def test_the_studys_own_service_is_priced_by_tokens(priced):
    data = json.loads(run(str(priced), "--hardware", "tinker", "--json").stdout)
    # plans/tessera.yaml by hand (tests/plan/test_work.py): 49.176576 x 1.5 + 182.452224 x 4.5 + 81.07008 x 5.25
    assert data["total"]["most"]["money"]["total"] == "1320.417792" and data["device"] is None


def test_prices_of_the_command_line_instead_of_the_plans(priced):
    bare = PLANS / "tessera.yaml"
    other = "{currency: USD, device_hour: {h200: 5}}"
    without, with_, twice = (
        json.loads(run(str(path), "--hardware", "h200x8", "--json", *more).stdout)
        for path, more in [(bare, ()), (bare, ("--prices", OWN.removeprefix("prices: "))), (priced, ("--prices", other))]
    )
    own = json.loads(run(str(priced), "--hardware", "h200x8", "--json").stdout)
    assert (without["prices"], without["prices_from"], own["prices_from"]) == (None, None, "plan")
    assert with_["digest"] == without["digest"] != own["digest"]  # the plan is what it was
    assert with_["total"] == own["total"] and with_["prices"] == own["prices"] and with_["prices_from"] == "--prices"
    euro, dollar = (float(found["total"]["most"]["money"]["total"]) for found in (own, twice))
    assert twice["prices"]["currency"] == "USD" and dollar == pytest.approx(2 * euro)
    text = " ".join(run(str(bare), "--hardware", "h200x8").stdout.split())
    assert "--prices '{currency: EUR, device_hour: {h200: ...}}'" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--hardware", "cpu", "--prices", ""), "--prices: there is nothing in it"),
        (("--hardware", "cpu", "--prices", "EUR"), "--prices:1:1: a plan is a mapping"),
        (("--hardware", "cpu", "--prices", "{currency: EUR, device_hours: {cpu: 1}}"), "did you mean `device_hour`?"),
        (("--hardware", "cpu", "--prices", "{currency: EUR, device_hour: {cpu: -1}}"), "--prices:1:36: device_hour.cpu"),
        (("--mean-tokens", "100"), "go with --hardware NAME"),
        (("--hardware", "h2000"), "did you mean `h200`?"),
        (("--hardware", "cpu", "--assume", "speed=2"), "`speed` is no assumption"),
        (("--hardware", "cpu", "--mean-tokens", "99999"), "no rollout is longer"),
        (("--hardware", "cpu", "--config", "nowhere.json"), "nowhere.json: cannot be read"),
        (("--hardware", "cpu", "--policy", "slurm"), "--policy: `slurm`"),
    ],
)
def test_what_cannot_be_asked_is_one_error(tmp_path, arguments, words):
    result = run(str(write_plan(tmp_path, TEXT)), *arguments)
    assert isinstance(result.exception, UsageError) and words in result.exception.message  # `main` makes exit code 2 of it


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"text_config": [1]}', "`text_config` is not a JSON object"),
        ('{"num_hidden_layers": 1e400}', "it is not JSON"),
        ("[" * 100_000, "nested too deep"),
        ('{"hidden_size": 0}', "`hidden_size` is 0"),
    ],
)
def test_a_config_that_cannot_be_is_one_error(tmp_path, text, words):
    (tmp_path / "config.json").write_text(text)
    result = run(str(write_plan(tmp_path, TEXT)), "--hardware", "h200x8", "--config", str(tmp_path / "config.json"), "--json")
    assert isinstance(result.exception, UsageError) and words in result.exception.message
