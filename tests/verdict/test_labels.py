from ablation.plan.load import load_plan
from ablation.verdict.labels import Replication, merged, missing_reasons, replication
from ablation.verdict.model import ArmVerdict, Reason

from .study import lock_small


def found(plan, labels):
    arms = {tuple(name.split("/")): ArmVerdict(*name.split("/"), label) for name, label in labels.items()}
    return replication(plan, lambda family, arm: arms.get((family, arm)))


STABLE = {f"{family}/{arm}": "STABLE" for family in ("main", "replication") for arm in "CNX"}


def test_a_control_that_is_damaged_in_neither_family_is_one_sentence(tmp_path):
    plan = load_plan(lock_small(tmp_path).path).plan
    headline = found(plan, STABLE)
    assert [(one.code, one.family) for one in headline.reasons] == [
        ("CONTROL_NOT_DAMAGED", "main"),
        ("CONTROL_NOT_DAMAGED", "replication"),
    ]
    (one,) = merged(headline.reasons)
    assert one.text == (
        "The control `C` was not damaged in main and replication: no damage rule fired. In those seeds this is no evidence for "
        "or against the other arms: there was no damage for them to prevent."
    )


def test_reasons_that_differ_in_more_than_the_family_stay_apart():
    reasons = [
        Reason("STOPPED", "`main/C` was ended after update 2.", "main"),
        Reason("STOPPED", "`replication/C` was ended after update 3.", "replication"),
        Reason("NO_STABLE_ARM", "No arm was stable in main.", "main"),
        Reason("RULE_FAILED", "`clean in main` failed."),
    ]
    assert merged(reasons) == reasons


def test_what_cannot_be_taken_back_rules_replicated_out(tmp_path):
    plan = load_plan(lock_small(tmp_path).path).plan
    for gone, control, codes in (
        ("replication/C", "STABLE", ["MISSING", "REPLICATED_RULED_OUT"]),
        ("replication/C", "DAMAGED", ["MISSING"]),
        ("main/N", "DAMAGED", ["MISSING", "REPLICATED_RULED_OUT"]),  # the other control is not damaged
    ):
        labels = STABLE | {"main/C": control}
        del labels[gone]
        headline = found(plan, labels)
        assert headline.label == "INCOMPLETE"
        assert [one.code for one in missing_reasons("Something is missing.", headline)] == codes
    assert [one.code for one in missing_reasons("Something is missing.", Replication())] == ["MISSING"]
