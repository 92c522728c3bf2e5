"""What a merge found, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

NUMBERS = {
    "merged_vs_adapter": "merged against base plus adapter",
    "adapter_vs_base": "base plus adapter against base",
    "merged_vs_base": "merged against base",
    "adapter_vs_start": "base plus adapter against base plus starting adapter",
    "adapter_vs_sampler": "base plus adapter against what was stored at sampling",
}


def merge_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Everything up to where the merge ended: a refused one has less."""
    lora, weights = record["lora"], record["weights"]
    kinds = ", ".join(f"{name} {count}" for name, count in lora["kinds"].items())
    yield f"{lora['used']} of {lora['pairs']} LoRA pairs merged ({kinds})"
    if weights["untied"]:
        yield "the output layer was tied to the input embedding; it has a matrix of its own now"
    rows = [
        (name, str(one["pairs"]), f"{100 * one['unchanged_share']:.1f}%", _lost(one["rounding_over_delta"]))
        for name, one in (*weights["kinds"].items(), ("all", weights["all"]))
    ]
    yield from ("", *_table(("module", "pairs", "unchanged", "rounding / change"), rows))
    if "check" not in record:
        return
    check, texts, engines = record["check"], record["texts"], record.get("engines")
    yield ""
    yield f"nats, mean absolute difference over {texts['tokens']} tokens of {texts['count']} texts ({texts['origin']})"
    rows = [(words, _nats(check[name]), _nats(check[name], "p99_absolute")) for name, words in NUMBERS.items() if name in check]
    if engines and "why" not in engines:
        rows.append((f"base in vLLM {engines['vllm']} against base here", *_both(engines["base_vs_base"])))
        rows.append((f"merged in vLLM {engines['vllm']} against base plus adapter here", *_both(engines["merged_vs_adapter"])))
    yield from _table(("", "mean", "p99"), rows)
    ratio = "not defined" if check["ratio"] is None else f"{check['ratio']:.3g}"
    yield f"the first is {ratio} of the second; it has to be under {check['share']:g}"
    if engines and "why" in engines:
        yield f"the base across engines: not measured ({engines['why']})"
    training = check.get("training")
    if training is not None and not training["kept"]:
        share = "not defined" if training["ratio"] is None else f"{training['ratio']:.2f}"
        yield f"WARNING: the first is {share} of what this run's updates changed (under {check['share']:g} is right)"
    if "breakage" in record:
        yield from ("", *breakage_lines(record["breakage"]))
    if engines and "why" not in engines:
        yield from ("", "the same, sampled by vLLM:", *breakage_lines(engines["breakage"]))


def breakage_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A row for each check of the breakage check."""
    others = list(dict.fromkeys(who for one in found["checks"].values() for who in one["references"]))
    rows = []
    for one in found["checks"].values():
        counts = [one["own"], *(one["references"].get(who) for who in others)]
        rows.append((one["words"], *map(_count, counts), one["result"]))
    yield from _table(("breakage check", "this", *others, "result"), rows)
    without = found.get("looked", {}).get("without_tools")
    if without:
        yield f"no tool was asked for: {without}"


def _count(count: Mapping[str, int] | None) -> str:
    return "-" if not count or not count["of"] else f"{count['holds']}/{count['of']}"


def _both(one: Mapping[str, Any]) -> tuple[str, str]:
    return _nats(one), _nats(one, "p99_absolute")


def _nats(one: Mapping[str, Any], name: str = "mean_absolute") -> str:
    return "not finite" if one[name] is None else f"{one[name]:.3g}"


def _lost(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Left-aligned first and last columns, right-aligned ones between."""
    lines = [head, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    for line in lines:
        cells = [
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        if len(head) > 3 and head[-1] == "result":
            cells[-1] = line[-1]
        yield "  ".join(cells).rstrip()
