"""What is kept of the most likely tokens at each place of a rollout."""

from __future__ import annotations

import numpy as np


def entropy_and_mass(logprobs_Tk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the k most likely tokens at each of T places: entropy of their shares of their own probability (nats), and that."""
    top_Tk = logprobs_Tk.astype(np.float64)
    mass_T = np.exp(top_Tk).sum(axis=1)
    share_Tk = np.exp(top_Tk) / mass_T[:, None]
    entropy_T = -np.where(share_Tk > 0, share_Tk * np.log(np.where(share_Tk > 0, share_Tk, 1.0)), 0.0).sum(axis=1)
    return entropy_T.astype(np.float32), mass_T.astype(np.float32)
