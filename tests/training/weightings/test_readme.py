"""The example of the instructions is right: its code runs, and its test passes on it."""

import re
from pathlib import Path

import pytest

from ablation.plan.weightings import Registered
from ablation.training import weightings

from .worked import MASKED, WHOLE, L

TEXT = (Path(weightings.__file__).parent / "README.md").read_text()
FILE, ENTRY, TEST = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_example_works_as_it_stands():
    made: dict = {}
    exec(FILE, made)
    checks: dict = {}
    exec(
        TEST.replace("from .worked import MASKED, WHOLE, weigh", ""),
        checks | (names := {"MASKED": MASKED, "WHOLE": WHOLE}),
        checks,
    )
    tests = {name: check for name, check in checks.items() if name.startswith("test_")}
    assert len(tests) == 2
    for check in tests.values():
        check.__globals__.update(names, pytest=pytest, weigh=lambda name, rollouts: made["weigh"](rollouts))
        check()


def test_its_entry_says_what_its_code_does():
    registered = eval("{" + ENTRY + "}", {"Registered": Registered})["root"]
    made: dict = {}
    exec(FILE, made)
    for row, weight in enumerate(made["weigh"](WHOLE)):
        names = {"A_i": WHOLE.advantages_R[row], "s0": 100, "L_i": L[row], "max_tokens": 200, "sqrt": lambda x: x**0.5}
        assert eval(registered.formula, names) == pytest.approx(weight)
    assert registered.per_rollout is False


def test_every_field_that_a_weighting_sees_is_explained():
    from dataclasses import fields
    from functools import cached_property

    names = {one.name for one in fields(WHOLE)} | {
        name for name, one in vars(type(WHOLE)).items() if isinstance(one, cached_property)
    }
    table = TEXT[TEXT.index("| field | what |") : TEXT.index("It returns the weight")]
    assert set(re.findall(r"`(\w+)`", table)) >= names
