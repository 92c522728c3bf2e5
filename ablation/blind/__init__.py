"""The blinded read: pairs of answers that a rater compares without knowing whose they are, and what its ratings come to."""

from ablation.blind.result import BlindResult, read_result
from ablation.blind.safety_labels import Label, safety_labels

__all__ = ["BlindResult", "Label", "read_result", "safety_labels"]
