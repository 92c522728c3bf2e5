"""Subject minus reference, paired: each rollout against its partner in the same cell and with the same seed.

The differences of pairs are summed by cluster, and clusters are what varies (Miller 2024, Adding error bars to evals, sections
2.2 and 4; Cameron and Miller 2015). Counts: the change of the count. Means (logprob and such): the difference of the two means
over rollouts with thinking. The interval is the plan's: a bootstrap that draws clusters with the pairs in them, or t.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ablation.measures.bootstrap import estimate
from ablation.measures.clusters import Pair, partners
from ablation.measures.contrast import MEANS, contrast
from ablation.measures.estimate import Estimate
from ablation.measures.exact_bounds import agreeing_clusters
from ablation.plan.measures import PAIRED
from ablation.plan.model import Statistics
from ablation.rollouts.outcomes import Outcomes


def changes(
    subject: Outcomes,
    reference: Outcomes,
    settings: Statistics,
    cluster: str = "cell",
    names: Collection[str] | None = None,
) -> dict[str, Estimate]:
    """Measure -> subject minus reference, for `names` (default: all of `PAIRED`).

    Raises `IncompleteError` that names the rollouts without a partner, and `IntegrityError` for other clusters.
    """
    wanted = [name for name in PAIRED if names is None or name in names]
    if not wanted:
        return {}
    pair = Pair.by(*partners(subject, reference), cluster)
    return {name: change(pair, name, settings) for name in wanted}


def change(pair: Pair, name: str, settings: Statistics) -> Estimate:
    """The change of one of `PAIRED` between models whose rows are partners."""
    one = contrast(pair, name, settings)
    if one.value is None:
        return Estimate(None, clusters=len(pair), reason=one.reason)
    estimand = settings.estimand if name == "correct_rate" else None
    found = estimate(one.value, one.columns_KM, one.statistic, settings, log=False, estimand=estimand)
    sums_K, sizes_K = one.signs_K, pair.of_subject.sizes
    if found.reason is None or name in MEANS or not ((sums_K == sums_K[0]).all() and (sizes_K == sizes_K[0]).all()):
        return found
    unit = 1 if name == "correct_rate" else len(pair.subject)
    low, high = agreeing_clusters(float(sums_K[0] / sizes_K[0]), len(sizes_K), settings.level, -1.0, 1.0)
    return replace(found, level=settings.level, bound=(unit * low, unit * high))
