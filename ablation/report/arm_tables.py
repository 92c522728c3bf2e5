"""What arms there are, one arm as YAML, and the worked update as a table: for a terminal of 80 columns, and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ablation.plan.arms import Arm, ArmAdam, ArmReward, Clip, KLAnchor, Training, library_arms
from ablation.plan.external import External
from ablation.plan.reference import default_in_words, type_in_words
from ablation.plan.resolved import yaml_block
from ablation.plan.weightings import WEIGHTINGS
from ablation.report.arm_example import ANSWER, CAP, FAR, REFERENCE, ROLLOUTS, S0, Example, short
from ablation.report.arm_words import OUTSIDE, advantage_formula, arm_formula, arm_in_words, symbols
from ablation.report.plan_page import pairs
from ablation.report.terminal import clean

_SECTIONS = {"clip": Clip, "kl": KLAnchor, "reward": ArmReward, "optimizer": ArmAdam, "external": External}


def library() -> dict[str, Arm]:
    """Every arm that a plan can take by name."""
    return {name: Arm.model_validate({"library": name}) for name in library_arms()}


def all_arms(own: Mapping[str, Arm] | None, plan_name: str | None) -> dict[str, Any]:
    """What can be said in a plan, the library and, if a plan is at hand, its arms; everything `arms` shows."""
    found: dict[str, Any] = {
        "weightings": {
            name: {"formula": one.formula.replace("*", "×"), "words": one.words, "per_rollout": one.per_rollout}
            for name, one in WEIGHTINGS.items()
        },
        "parts": dict(_parts()),
        "library": {name: _summary(arm) for name, arm in library().items()},
    }
    if own is not None:
        found |= {"plan": plan_name, "arms": {name: _summary(arm) for name, arm in own.items()}}
    return found


def _parts() -> Iterator[tuple[str, dict[str, str]]]:
    """Each field of an arm but its weighting: what may stand there, what stands there if it is left out, and what it means."""
    for name, info in Arm.model_fields.items():
        inner = _SECTIONS.get(name)
        if name != "weighting":
            allowed = "null, or the fields below" if inner else type_in_words(info)
            yield name, {"allowed": allowed, "default": default_in_words(info), "meaning": _one_line(info.description)}
        for below, own in inner.model_fields.items() if inner else ():
            allowed, default = type_in_words(own), default_in_words(own)
            yield f"{name}.{below}", {"allowed": allowed, "default": default, "meaning": _one_line(own.description)}


def _summary(arm: Arm) -> dict[str, Any]:
    return {"formula": arm_formula(arm), "advantage": advantage_formula(arm), "note": arm.note, "fields": arm.model_dump()}


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def arms_page(found: dict[str, Any]) -> RenderableType:
    """`found` is what `all_arms` returns."""
    found = clean(found)
    parts: list[RenderableType] = []

    def section(title: str, *content: RenderableType) -> None:
        parts.append(Text(f"{chr(10) if parts else ''}{title}", style="bold cyan"))
        parts.extend(Padding(part, (0, 0, 0, 2)) for part in content)

    section("Library: `arms: {N: {library: N}}` takes one; fields beside it replace its own", _summaries(found["library"]))
    if "arms" in found:
        section(f"Arms of {found['plan']}", _summaries(found["arms"]))
    arms = [Arm.model_validate(one["fields"]) for one in (found["library"] | found.get("arms", {})).values()]
    arms += [Arm.model_validate({"weighting": name}) for name in found["weightings"]]
    rows = [(name, f"{one['formula']}\n{one['words']}") for name, one in found["weightings"].items()]
    section("Weightings: the weight of one token of rollout i", pairs(rows))
    parts.append(Text(f"\n{symbols(arms)} s0: the plan's fixed scale, in tokens."))
    rows = [(name, f"{_allowed(one)}\n{one['meaning']}") for name, one in found["parts"].items()]
    section("The other parts of an arm", pairs(rows))
    parts.append(Text("\nOne arm in full: ablation arms show N\nWorked by hand:  ablation arms show N --example"))
    return Group(*parts)


def _allowed(part: dict[str, str]) -> str:
    return part["allowed"] + ("; required" if part["default"] == "required" else f"; default {part['default']}")


def _summaries(arms: dict[str, dict[str, Any]]) -> Table:
    rows = []
    for name, one in arms.items():
        usual = one["advantage"] in (advantage_formula(Arm(weighting="token")), OUTSIDE)
        advantage = "" if usual else f"\nA_i = {one['advantage']}"
        rows.append((name, f"{one['formula']}{advantage}" + (f"\n{one['note']}" if one["note"] else "")))
    return pairs(rows)


def arm_content(name: str, arm: Arm, source: str, training: Training | None) -> dict[str, Any]:
    """One arm as plain data."""
    return {
        "name": name,
        "source": source,
        "formula": arm_formula(arm),
        "advantage": advantage_formula(arm),
        "words": arm_in_words(arm, training),
        "symbols": symbols([arm]),
        "fields": arm.model_dump(),
    }


def arm_yaml(content: dict[str, Any]) -> str:
    """`arm_content` as YAML that can stand in a plan; formula and words are comments in it."""
    formulas = [f"weight of a token: {content['formula']}", f"A_i = {content['advantage']}"]
    own = content["fields"]["external"] is not None
    comments = [f"{content['name']}, {content['source']}", *([] if own else formulas), *content["words"]]
    lines = [f"# {' '.join(line.split())}" for line in clean(comments)]
    return "\n".join(lines) + "\n" + yaml_block({"arms": {content["name"]: content["fields"]}})


def example_content(example: Example, row: int) -> dict[str, Any]:
    """The worked update as plain data; `row` (from 0) is the rollout that is worked by hand."""
    return {
        "s0": S0,
        "max_tokens": CAP,
        "reference_lengths": REFERENCE,
        "rollouts": example.rows(),
        "sums": example.sums(),
        "by_hand": {"rollout": row + 1, "lines": [{"what": what, "arithmetic": text} for what, text in example.by_hand(row)]},
    }


def example_page(content: dict[str, Any], example: Example) -> RenderableType:
    """One arm on the worked update. `content` has what `arm_content` and `example_content` return."""
    content = clean(content)
    made, hand = content["example"], content["example"]["by_hand"]
    one = ROLLOUTS[hand["rollout"] - 1]
    title = f"Rollout {hand['rollout']} by hand ({one.cell}, {one.what}; four digits are shown)"
    return Group(
        Text.assemble((content["name"], "bold"), f", {content['source']}: {content['formula']}"),
        Text(f"A_i = {content['advantage']}"),
        Padding(Text("\n".join(content["words"])), (0, 0, 0, 2)),
        Text(f"\n{_made_up(example.arm)}"),
        Text(),
        _rollouts(made["rollouts"], example.arm),
        Text(),
        pairs(_sums(made["sums"])),
        Text(f"\n{title}", style="bold cyan"),
        Padding(pairs((line["what"], line["arithmetic"]) for line in hand["lines"]), (0, 0, 0, 2)),
        Text(f"\n{content['symbols']}"),
    )


def _made_up(arm: Arm) -> str:
    references = ", ".join(f"{cell} {short(length)}" for cell, length in REFERENCE.items())
    text = (
        f"A made-up update: s0 {short(S0)}, cap {CAP} tokens; mean clean thinking length in the sweep: {references}, p3@low "
        f"none. Every rollout but the truncated one has a visible answer of {ANSWER} tokens after its thinking."
    )
    if arm.kl is not None:
        text += " moved: logp − logp_start of each of its tokens, nats, made up."
    if arm.clip is not None:
        text += f" ratio: trainer / sampler on its first {FAR} tokens, made up; 1 on the others."
    if arm.weighting == "high_entropy":
        text += " H_t is 1 nat on the first fifth of the thinking and of the answer, 0.1 on the others, made up."
    return text


def _rollouts(rows: list[dict[str, Any]], arm: Arm) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_edge=False, collapse_padding=arm.kl is not None)
    table.add_column("", justify="right")
    for name in ("cell", "what"):
        table.add_column(name, no_wrap=True)
    columns = ["r_i", "A_i", "L_i"]
    columns += ["moved"] if arm.kl is not None else []
    columns += ["ratio"] if arm.clip is not None else []
    columns += ["a token", "total"]
    columns += ["of it KL"] if arm.kl is not None else []
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        shown = {
            "r_i": short(row["reward"]),
            "A_i": short(row["advantage"]),
            "L_i": str(row["weighted_tokens"]),
            "moved": short(row.get("moved", 0.0)),
            "ratio": short(row.get("ratio", 1.0)),
            "a token": "\n".join(_tokens(row["weights"])),
            "total": short(round(row["total"], 9)),
            "of it KL": short(row.get("kl_total", 0.0)),
        }
        table.add_row(str(row["rollout"]), row["cell"], row["what"], *(shown[name] for name in columns))
    return table


def _tokens(weights: list[dict[str, Any]]) -> Iterator[str]:
    """The weight of a token; with how many tokens have it, where they differ."""
    for one in weights:
        yield short(one["weight"]) if len(weights) == 1 else f"{one['tokens']} × {short(one['weight'])}"


def _sums(sums: dict[str, Any]) -> Iterator[tuple[str, str]]:
    def share(name: str) -> str:
        return "undefined: nothing has weight" if sums[name] is None else f"{sums[name]:.1%} of the absolute weight"

    yield "absolute weight", short(sums["absolute_weight"])
    yield "net weight", short(sums["net_weight"])
    yield "negative", share("negative_share")
    yield "on truncated", share("truncated_share")
    if sums["kl_share"]:
        yield "KL term", share("kl_share")
    if sums["clipped_tokens"]:
        yield "clipped", f"{sums['clipped_tokens']} tokens"
    yield "no signal", ", ".join(sums["no_signal_cells"]) or "none"
