"""Own tests of claims against the engine's, over measures, methods and sides; Holm and the sign test by hand."""

from types import SimpleNamespace

import pytest

from ablation.audit.claims import binomial_below, holm, own_claims
from ablation.audit.findings import Findings
from ablation.audit.intervals import Settings
from ablation.plan.claims import MEASURES, Claim
from ablation.plan.model import Statistics
from ablation.verdict.claims import judge_claims
from tests.audit.test_intervals import made, own

STAGES = {("main", "start"): made(1), ("main", "N"): made(2, skill=0.75), ("main", "C"): made(3, skill=0.5)}
STAGES |= {("second", "N"): made(4, skill=0.7), ("second", "C"): made(5, skill=0.45)}


@pytest.mark.parametrize("side", ["greater", "less", "two_sided"])
@pytest.mark.parametrize("method", ["cluster_bootstrap", "cluster_t", "sign", "welch"])
@pytest.mark.parametrize("interval", ["percentile", "expanded", "t"])
def test_p_values_are_the_engine_s(interval, method, side):
    plain = {"level": 0.9, "resamples": 300, "seed": 5, "min_clusters": 5, "method": interval, "estimand": "mean_of_clusters"}
    families = {"families": ["main", "second"]} if method == "welch" else {}
    claims = {
        name: Claim(subjects=["N"], reference="C", measure=name, side=side, method=method, correction="none", **families)
        for name in MEASURES
    }
    plan = SimpleNamespace(
        verdict=SimpleNamespace(claims=claims, unread=None),
        main_family="main",
        statistics=Statistics(few_clusters="undecided", **plain),
    )
    theirs = judge_claims(plan, lambda family, arm: STAGES.get((family, arm)))
    stages = {
        f"{family}/{arm}/{'sweep' if arm == 'start' else 'readout'}": SimpleNamespace(outcomes=own(stage), whole=True)
        for (family, arm), stage in STAGES.items()
    }
    written = {name: one.model_dump() for name, one in claims.items()}
    tree = SimpleNamespace(plan={"verdict": {"claims": written}}, main_family="main", order={})
    run = SimpleNamespace(tree=tree, stages=stages, settings=Settings(few_clusters="undecided", **plain), found=Findings())
    mine = own_claims(run)
    assert len(mine) == len(theirs) == len(MEASURES)
    for one in theirs:
        [(subject, label, p)] = mine[one.name]
        assert (subject, label) == ("N", one.tests[0].label), one.name
        assert p == (None if one.tests[0].p is None else pytest.approx(one.tests[0].p, rel=1e-9, abs=1e-12)), one.name


def test_holm_and_signs_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.02, None]) == [0.04, None]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert binomial_below(1, 8) == 9 / 256  # none or one of eight fair coins
