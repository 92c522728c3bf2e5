"""`ablation plan show PLAN --hardware NAME`: what a plan takes on hardware that is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablation.plan.load import LoadedPlan
    from ablation.plan.prices import Prices


def on_hardware(
    file: Path,
    name: str,
    *,
    backend: str | None,
    mean: float | None,
    prompt: int,
    config: Path | None,
    assume: Sequence[str],
    prices: str | None,
    as_json: bool,
) -> None:
    """Print memory, time and money of the plan on `name`. Raises `PlanError`, or `UsageError` for an option that cannot be."""
    import typer

    from ablation.plan.hardware import Assumed, hardware
    from ablation.plan.hardware_plan import OnHardware
    from ablation.plan.load import load_plan
    from ablation.report.hardware_page import hardware_page, hardware_summary
    from ablation.report.terminal import print_page

    loaded = load_plan(file)
    sizes, where = model_config(loaded, config)
    assumed = Assumed().changed(assume)
    given = None if prices is None else parse_prices(prices)
    found = OnHardware(
        loaded.plan if given is None else loaded.plan.model_copy(update={"prices": given}),
        hardware(name, loaded.plan.policy.threads, assumed),
        sizes,
        backend=backend,
        mean=mean,
        prompt=prompt,
        assumed=assumed,
    )
    content = hardware_summary(loaded, found, where)
    if given is not None:
        content["prices_from"] = "--prices"
    if as_json:
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print_page(hardware_page(found, content))


def parse_prices(text: str) -> Prices:
    """The plan's section `prices`, from a command line. Raises `PlanError` that names each field that cannot be."""
    from pydantic import ValidationError

    from ablation.errors import UsageError
    from ablation.plan.explain import explain
    from ablation.plan.load import PlanError, hidden
    from ablation.plan.prices import Prices
    from ablation.plan.yaml_reader import read_yaml

    if not text.strip():
        raise UsageError("--prices: there is nothing in it; for instance '{currency: EUR, device_hour: {h200: 3.50}}'")
    document = read_yaml(text.encode())
    problems = list(document.faults)
    if isinstance(document.value, dict):
        try:
            found = Prices.model_validate(document.value)
        except ValidationError as error:
            problems += [fault for fault in explain(error, document, Prices) if not hidden(fault, document)]
    if problems:
        raise PlanError(Path("--prices"), sorted(set(problems)))
    return found


def model_config(loaded: LoadedPlan, config: Path | None) -> tuple[dict[str, Any], str | None]:
    """(the model's config.json, where it was found): the given one, else that of the plan's base where it is at hand."""
    from ablation.errors import UsageError
    from ablation.files import parse_json
    from ablation.plan.footprint import wrong_in_config
    from ablation.plan.locate import locate

    base = loaded.plan.model.base
    path = locate(base, loaded.path) / "config.json" if config is None else config
    if config is None and not path.is_file():
        return {}, None
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or f"it is not JSON: {error}"
        raise UsageError(f"{path}: cannot be read as a model's config: {reason}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path}: cannot be read as a model's config: it is not a JSON object")
    wrong = wrong_in_config(content)
    if wrong is not None:
        raise UsageError(f"{path}: cannot be read as a model's config: {wrong}")
    return content, f"{base.at}/config.json" if config is None else str(config)
