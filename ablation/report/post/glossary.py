"""The words of a report for somebody who has never seen one: every measure and label, in a sentence each."""

from __future__ import annotations

from ablation.plan.model import Plan
from ablation.report.post.document import Block, Code, Facts, Parts, Section, text
from ablation.verdict.model import Verdict

LABELS = {
    "DAMAGED": "at least one of the plan's damage rules fired on the run's readout.",
    "STABLE": "none of the plan's damage rules fired.",
    "STOPPED": "a stop rule ended the run early, so it has no readout and is neither damaged nor stable.",
    "NO_STEP": "no update took a step, so the readout is of the starting model: nothing was tried.",
    "UNDECIDED": "a number that decides is missing or undefined. Never a silent pass.",
    "REPLICATED": "in both families of seeds the control was damaged and another arm was stable: the contrast came twice.",
    "NOT_REPLICATED": "that contrast did not come in both families. The reasons beside it say what did.",
    "INCOMPLETE": "rollouts that the plan asks for are not there yet, so there is no label.",
    "NOT_RUN": "nothing was sampled for it.",
    "WIN_VERIFIED": "all rules on the held-out problems hold, and a blinded read passed.",
    "WIN_UNVERIFIED": "all rules on the held-out problems hold, but no blinded read passed.",
    "NO_WIN": "a rule on that set failed.",
    "WIN": "all rules on the main set hold.",
    "CONFIRMED": "all rules on problems that nobody had used before hold.",
    "NOT_CONFIRMED": "a rule on those problems failed.",
    "SELECTED": "the checkpoint that the plan's own order picks among those that may be chosen.",
    "NONE_ELIGIBLE": "no checkpoint may be chosen.",
    "RELEASE": "the main set says WIN and every guard holds.",
    "NO_RELEASE": "it does not, or a guard failed.",
    "SHOWN": "the registered test rejects that the arms are equal, at the level that the plan fixed.",
    "NOT_SHOWN": "the test does not reject it, which is no evidence that nothing differs.",
}
WORDS = {
    "arm": "one training run that changes one thing against the others.",
    "control": "the arm that the others are held against: training as it is, without the change that an arm tries.",
    "contrast": "what the headline asks for: in the same seeds the control is damaged and another arm is not.",
    "family": "one set of random seeds for sampling and shuffling. The second repeats control and first stable arm.",
    "cell": "one problem at one setting of reasoning effort (low, medium or high, for instance).",
    "rollout": "one sampled response: thinking, then a visible answer.",
    "group": "the rollouts of one cell in one update. A rollout is held against the others of its group.",
    "advantage": "reward of a rollout minus what its group gives for comparison, most often the group's mean reward; an arm says "
    "if it does otherwise. Above zero training makes the rollout's tokens likelier, below zero less likely.",
    "update": "one step of the optimizer, on the rollouts of some of the cells.",
    "stop rule": "a number of an update at which the plan ends a run at once, without a readout.",
    "sweep": "the starting model sampled on all cells before training.",
    "readout": "a trained arm sampled on all cells after its last update, with the sweep's seeds.",
    "start": "the model before training.",
    "correct": "the visible answer was graded as right.",
    "truncated": "the rollout reached the cap on tokens before it ended by itself.",
    "looping": "the thinking repeats itself: a fixed block again and again, or most of its stretches occurred before.",
    "clean": "correct, finished and without a repetition loop.",
    "either": "truncated or looping.",
    "log-probability": "how sure the model is of its own thinking: the mean over rollouts of each one's mean log-probability of "
    "its sampled thinking tokens, in nats. A fall means drift.",
    "top-20 entropy": "how widely the model spreads its next token: entropy of the 20 most likely ones, in nats, averaged like "
    "the log-probability.",
    "tokens per correct": "all sampled tokens divided by correct answers, as a ratio to the starting model. Below 1 is cheaper.",
    "clean length": "geometric mean over cells of (mean length of clean thinking / the start's), where both have some.",
    "N@3": "a checkpoint: an arm and the update after which it was taken, here arm N after update 3.",
    "sets": "problems apart from the training cells: held-out (is it a win?), never-used (does it hold on problems that no study "
    "had touched?), selection (which checkpoint?), main (may it replace the start?). The main set is not the family main.",
    "blinded read": "somebody compares pairs of answers without knowing which model gave which.",
    "guard": "a rule that a release must keep, too.",
    "length, both correct": "geometric mean of the ratio of lengths over pairs of rollouts that both models got right.",
    "CJK share": "median share of Chinese, Japanese and Korean letters in the thinking of clean rollouts.",
    "typical turn": "geometric mean over agent tasks of the ratio of thinking tokens a turn.",
    "interval": "how far the number may be off by the draw of problems: intervals made in this way hold the true number about as "
    "often as the percentage says. It is over cells, problems or tasks, not over training runs.",
    "x": "times: 0.80x is a fifth less than the start, 1.20x a fifth more.",
    "weight": "the factor with which training pushed a token up (positive) or down (negative). Shares are of the sum of sizes.",
    "KL": "how far the trained model's choice of a token is from the starting model's, in nats. An arm with a KL term adds a "
    "pull back to the start to the weights; its share of the absolute weight is in the audit.",
    "deviation": "something done otherwise than the plan says, written down before it was done. Every later label names it.",
    "digest": "a fingerprint (SHA-256) of a file or plan: the same digest means the same content.",
    "journal": "the run's log: every event with its time, chained so that a changed line is found.",
    "nat": "the unit of natural logarithms; a fall of 0.1 nats makes a token about 10% less probable.",
}
_PHASE2 = ("N@3", "sets", "blinded read", "guard", "length, both correct", "CJK share", "typical turn")


def glossary(plan: Plan, verdict: Verdict) -> Section:
    """Words and labels that this report uses."""
    second = bool(verdict.sections)
    words: list[tuple[str, Parts]] = [(name, (said,)) for name, said in WORDS.items() if second or name not in _PHASE2]
    shown = {verdict.label, *(one.label for one in verdict.arms)}
    for section in verdict.sections.values():
        shown |= {one.label for one in (section, *section.others)}
    shown |= {test.label for claim in verdict.claims for test in claim.tests}
    pairs = [("DAMAGED", "STABLE"), ("REPLICATED", "NOT_REPLICATED")]
    for pair in (*pairs, ("WIN_VERIFIED", "WIN_UNVERIFIED", "NO_WIN"), ("CONFIRMED", "NOT_CONFIRMED"), ("RELEASE", "NO_RELEASE")):
        shown |= set(pair) if shown & set(pair) else set()
    found: list[tuple[str, Parts]] = [(name, (said,)) for name, said in LABELS.items() if name in shown]
    own = sorted(shown - set(LABELS))
    found += [(name, ("a label of the plan's own decision table.",)) for name in own]
    blocks: list[Block] = [
        text("Words, as they are used here:"),
        Facts(tuple(words)),
        text("Labels:"),
        Facts(tuple(found)),
        text(
            "A label with something in parentheses behind it, for instance ",
            Code("(deviation 1)"),
            ", rests on that, too; ",
            Code("(redone)"),
            ": on something that was sampled or trained again and came out otherwise.",
        ),
    ]
    return Section("glossary", "Words and labels", blocks)
