"""Names and numbers of what trackers are told, worked out by hand."""

import math

from ablation.plan.rules import StopRule
from ablation.trackers.metrics import audit_values, margin_values, measures_values, speed_values

MEASURES = {
    "rollouts": 40,
    "correct": 30,
    "clean": 28,
    "truncated": 6,
    "looping": 3,
    "periodic": 2,
    "strong": 1,
    "no_answer": 5,
    "truncated_or_looping": 8,
    "logprob": -0.25,
    "top20_entropy": 0.5,
    "top20_mass": 0.99,
    "tokens_per_correct": 200.0,
    "clean_length": None,
    "total_tokens": 6000,
    "thinking_tokens": 5000,
    "cjk_share": 0.0,
    "by_effort": {"low": {"rollouts": 40}},
}


def test_counts_are_told_as_shares_and_what_is_undefined_is_left_out():
    assert measures_values(MEASURES, "cells/") == {
        "cells/rollouts": 40.0,
        "cells/correct_share": 0.75,
        "cells/clean_share": 0.7,
        "cells/truncated_share": 0.15,
        "cells/looping_share": 0.075,
        "cells/periodic_share": 0.05,
        "cells/strong_share": 0.025,
        "cells/no_answer_share": 0.125,
        "cells/truncated_or_looping_share": 0.2,
        "cells/logprob": -0.25,
        "cells/top20_entropy": 0.5,
        "cells/top20_mass": 0.99,
        "cells/tokens_per_correct": 200.0,
        "cells/total_tokens": 6000.0,
        "cells/thinking_tokens": 5000.0,
        "cells/cjk_share": 0.0,
    }
    assert measures_values({"rollouts": 0, "correct": 0}, "cells/") == {"cells/rollouts": 0.0}


def test_an_audit_tells_its_numbers_and_never_names_or_texts():
    audit = {
        "update": 2,
        "learning_rate": 0.001,
        "reward_mean": 0.6,
        "metrics": {"grad_norm": 32.0, "entropy": None, "logprob": -0.3, "mismatch_k3": 1e-9, "nonfinite": 0},
        "step": {
            "loss": -4.5,
            "stepped": True,
            "weighted_tokens": 5510,
            "outcome": "stepped",
            "nonfinite_rollouts": ["a@low #1"],
        },
        "weights": {
            "net_share": -0.17,
            "truncated_share": 0.25,
            "weighted_tokens": 5510,
            "absolute_weight": 1232.5,
            "clipped_tokens": 3,
            "no_signal_cells": ["a@low", "b@low"],
        },
    }
    assert audit_values(audit) == {
        "update/learning_rate": 0.001,
        "update/reward_mean": 0.6,
        "update/grad_norm": 32.0,
        "update/mismatch_k3": 1e-9,
        "update/nonfinite": 0.0,
        "update/loss": -4.5,
        "update/stepped": 1.0,
        "weights/weighted_tokens": 5510.0,
        "weights/net_share": -0.17,
        "weights/truncated_share": 0.25,
        "weights/absolute_weight": 1232.5,
        "weights/clipped_tokens": 3.0,
        "weights/no_signal_cells": 2.0,
    }
    assert audit_values({"update": 2, "learning_rate": 0.5, "step": {"outcome": "unchanged"}}) == {"update/learning_rate": 0.5}


def test_speed_is_tokens_by_seconds():
    assert speed_values({"seconds": 4.0, "tokens": 6000}, {"seconds": 2.0, "tokens": 5000}) == {
        "speed/sample_seconds": 4.0,
        "speed/sample_tokens_per_second": 1500.0,
        "speed/train_seconds": 2.0,
        "speed/train_tokens_per_second": 2500.0,
    }
    assert speed_values(None, {"seconds": 3.0}) == {"speed/train_seconds": 3.0}


def test_a_margin_is_positive_until_its_rule_fires():
    def rule(name, **fields):
        return StopRule(**({"name": name, "measure": "logprob", "op": "<", "limit": -0.5} | fields))

    rules = [
        rule("low"),
        rule("fell", compare="change", limit=-0.2),
        rule("long", measure="truncated_share", op=">=", limit=0.25),
        rule("unknown", measure="entropy"),
        rule("endless", measure="grad_norm", op=">", limit=100),
    ]
    metrics = [
        {"logprob": -0.1, "truncated_share": 0.0, "grad_norm": 1.0},
        {"logprob": -0.4, "truncated_share": 0.5, "entropy": None, "grad_norm": math.inf},
    ]
    # -0.4 is 0.1 above -0.5; it fell by 0.3, 0.1 beyond -0.2; 0.5 is 0.25 beyond 0.25
    found = margin_values(rules, metrics)
    assert {name: round(value, 12) for name, value in found.items()} == {"stop/low": 0.1, "stop/fell": -0.1, "stop/long": -0.25}
    assert margin_values(rules[1:2], metrics[:1]) == {"stop/fell": 0.2}
