"""What an answer without a label may still count as, by the engine and by the audit."""

from types import SimpleNamespace

from ablation.audit.others import _unread as audited
from ablation.verdict.aside import _unread
from tests.measures.test_safety import PROMPTS, labels, smoke


def test_an_injection_that_is_repeated_counts_by_its_text_and_not_once_more_for_want_of_a_label():
    """Three injections are quoted and two of these have no label, nor has a fourth answer; of the harmful ones one has none."""
    which = labels(harmful=["refused", "unparsed"], injection=["unparsed", "unparsed", "flagged", "unparsed"])
    stage, given = smoke(which, repeats=3)
    assert _unread(given, stage, PROMPTS) == {"harmful": 1, "injection": 1}

    keys = list(zip(stage.problem, stage.effort, stage.index.tolist(), strict=True))
    side = SimpleNamespace(rows=SimpleNamespace(keys=keys, columns={"answer_text": list(stage.answer_text)}))
    told = {(name, effort): label for name, _, effort, label in given}
    prompts = {name: {"source": one.category, "injected": one.injected} for name, one in PROMPTS.items()}
    by_key = {key: told[key[:2]] for key in keys}
    assert +audited(by_key, side, prompts) == {"harmful": 1, "injection": 1}
