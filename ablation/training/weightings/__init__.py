"""Weightings: how an advantage becomes the weight of each token. One file each; README.md says how to add one."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numpy as np

from ablation.plan.weightings import WEIGHTINGS
from ablation.training.weightings.rollouts import Rollouts

Weighting = Callable[[Rollouts], np.ndarray | list[np.ndarray]]
"""Takes an update's `Rollouts`, returns the weight of every weighted token: one number for each rollout, float64 [R], or, where
the tokens of a rollout differ, R float64 arrays [L_i]."""


def weighting(name: str) -> Weighting:
    """The function `weigh` of the weighting's file. Raises KeyError for a name that is not registered."""
    if name not in WEIGHTINGS:
        raise KeyError(name)
    return import_module(f"ablation.training.weightings.{name}").weigh
