"""GRPO's aggregation: the mean over each response, then the mean over responses (arXiv 2402.03300, equation 3).

A_i / (R * L_i) per token; times R * s0 that is A_i * s0 / L_i, the same numbers as `rollout`.
"""

from __future__ import annotations

from ablation.training.weightings.rollout import weigh

__all__ = ["weigh"]
