"""Stages that were sampled elsewhere, and what every label that rests on them says of it.

`info.engine` of such a stage has `name: imported`, `source` and `sha256` (of the files), and what is known of the rows:
`token_ids` (`given` or `retokenized`), `logprobs` and `top_entropy` (whether they were given), `seeds` (`plan`, `own`, `absent`),
`prompts` (`ids`, `text`, `absent`), `texts` (`held` against the ids by a tokenizer, or `given`), `finish` (`given`, `by_ids`,
`by_count`) and `redacted` (how many rollouts were given without their thinking).
"""

from __future__ import annotations

from collections.abc import Iterable

from ablation.rollouts.schema import StageInfo

IMPORTED = "imported"
SLACK = 0.1
"""A text that is encoded again need not have the length that was sampled: this far from the cap is allowed."""

OF_THINKING = (
    *("clean", "looping", "truncated_or_looping", "periodic", "strong", "with_thinking", "thinking_tokens", "total_tokens"),
    *("logprob", "top20_entropy", "top20_mass", "cjk_share"),
    *("tokens_per_correct", "clean_length", "jointly_correct_length"),
)
"""Measures that nobody can tell of rollouts whose thinking is not known."""

_MARKS = (
    ("token_ids", "retokenized", "retokenized"),
    ("seeds", "absent", "without seeds"),
    ("finish", "by_count", "ends by count"),
)


def is_imported(info: StageInfo) -> bool:
    return info.engine.get("name") == IMPORTED


def is_retokenized(info: StageInfo) -> bool:
    """Whether the token ids are those of the text, encoded again, and not the sampled ones."""
    return is_imported(info) and info.engine.get("token_ids") == "retokenized"


def has_seeds(info: StageInfo) -> bool:
    return not is_imported(info) or info.engine.get("seeds") != "absent"


def prompt_kind(info: StageInfo) -> str:
    """What `prompt_sha256` is the digest of: `ids`, `text`, or `absent` if it is of nothing."""
    return info.engine.get("prompts", "absent") if is_imported(info) else "ids"


def marks(infos: Iterable[StageInfo]) -> tuple[str, ...]:
    """What a label that rests on these stages says: `imported` first, then what is weaker than in a run of our own."""
    found = [info for info in infos if is_imported(info)]
    if not found:
        return ()
    return (IMPORTED, *(mark for name, value, mark in _MARKS if any(one.engine.get(name) == value for one in found)))


def absent_measures(info: StageInfo) -> dict[str, str]:
    """Measure -> why it is undefined, for what the imported rows do not have."""
    if not is_imported(info):
        return {}
    who = f"{info.family}/{info.arm}/{info.stage} was imported without"
    found = {} if info.engine.get("logprobs") else {"logprob": f"{who} logprobs"}
    if not info.engine.get("top_entropy"):
        found |= dict.fromkeys(("top20_entropy", "top20_mass"), f"{who} entropies")
    if redacted := info.engine.get("redacted"):
        found |= dict.fromkeys(OF_THINKING, f"{who} the thinking of some rollouts ({redacted})")
    return found


def import_note(info: StageInfo) -> str:
    """One sentence for a verdict's page."""
    engine = info.engine
    files = ", ".join(
        f"{name} ({digest[:12]})" for name, digest in zip(engine.get("source", []), engine.get("sha256", []), strict=False)
    )
    said = [f"{info.family}/{info.arm}/{info.stage}: imported from {files}; sampling settings as the importer says"]
    said += ["texts encoded again, so token counts are close, not exact"] if is_retokenized(info) else []
    said += ["texts as the importer says, not held against the ids"] if engine.get("texts") == "given" else []
    said += [] if engine.get("logprobs") else ["no logprobs"]
    said += [f"the thinking of some rollouts ({engine['redacted']}) is not known"] if engine.get("redacted") else []
    seeds = {"absent": "no seeds, so rollouts are paired by cell and index alone", "own": "seeds of its own, not the plan's"}
    said += [seeds[engine["seeds"]]] if engine.get("seeds") in seeds else []
    said += ["prompts not known"] if prompt_kind(info) == "absent" else []
    said += ["finish reasons taken from token counts"] if engine.get("finish") == "by_count" else []
    return "; ".join(said)
