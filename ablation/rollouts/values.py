"""The sampling values that each rollout carries: all of them, so that what one backend calls a default cannot hide in another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

NEUTRAL: dict[str, Any] = {
    "min_p": 0.0,
    "min_tokens": 0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": True,  # the model's own end token ends nothing unless the plan names it
}
"""Values that change nothing; no plan has a field for them."""
RAW = "raw"
"""Logprobs of the full vocabulary at temperature 1, whatever the sampling values. The only kind that is sampled here."""


def values_in_effect(
    temperature: float, top_p: float, top_k: int, max_tokens: int, end_ids: tuple[int, ...], **others: Any
) -> dict[str, Any]:
    """Every value that decides what is sampled. `others`: what is in effect of `NEUTRAL`, where it is not neutral."""
    unknown = others.keys() - NEUTRAL.keys()
    assert not unknown, unknown
    return {
        "temperature": float(temperature),
        "top_p": float(top_p),
        "top_k": top_k,
        "max_tokens": max_tokens,
        "end_ids": list(end_ids),
        **NEUTRAL,
        **others,
    }


def values_text(values: Mapping[str, Any]) -> str:
    """One text for equal values, as a row has it: JSON with sorted keys and no spaces."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
