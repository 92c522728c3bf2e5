"""The problems are reasoning-gym's own, and the answers are right by arithmetic of our own."""

import re
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.files import sha256_path
from ablation.plan.load import load_plan
from ablation.problems.grade import grade
from ablation.problems.problem import load_problems
from ablation.recipes import smollm2_problems as recipe

gym = pytest.importorskip("reasoning_gym")
PLAN = Path(__file__).parents[2] / "plans" / "smollm2.yaml"


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "problems.jsonl"
    recipe.make_problems(path)
    assert sha256_path(path) == load_plan(PLAN).plan.problems.training.sha256
    return load_problems(path)


def test_the_plan_uses_every_problem_at_every_effort(problems):
    cells = load_plan(PLAN).plan.problems.cells
    assert list(cells) == ["low", "medium", "xhigh"]
    assert all(ids == list(problems) for ids in cells.values())
    assert Counter(problem.source for problem in problems.values()) == dict.fromkeys(recipe.GENERATORS, recipe.PER_SOURCE)


def test_gold_agrees_with_the_generators_own_scorer(problems):
    for source, settings in recipe.GENERATORS.items():
        dataset = gym.create_dataset(source, seed=recipe.STUDY_SEED, size=50, **settings)
        items = {item["question"].strip(): item for item in dataset}
        for problem in (problem for problem in problems.values() if problem.source == source):
            item = items[problem.prompt]
            wrong = str(int(problem.gold) + 1)
            assert dataset.score_answer(problem.gold, item) == 1.0
            assert dataset.score_answer(wrong, item) < 1.0
            assert grade(problem, f"\n{problem.gold}").status == "correct"
            assert grade(problem, wrong).status == "incorrect"


def test_gold_by_our_own_arithmetic():
    legs = {"humans": 2, "wasps": 6, "bees": 6, "cats": 4, "dogs": 4, "spiders": 8, "ducks": 2, "crabs": 10, "snakes": 0}
    checked = Counter()
    for source in recipe.GENERATORS:
        for question in islice(recipe.questions(source, recipe.STUDY_SEED), 200):
            if source == "chain_sum":
                terms = re.search(r": ([0-9 +-]+) =", question.text)[1].replace("- ", "-").replace("+ ", "").split()
                assert int(question.gold) == sum(map(int, terms))
            elif source == "leg_counting":
                named = re.findall(r"(\d+) ([a-z ]+)[,?]", question.text)
                if any(animal not in legs for _, animal in named):
                    continue
                assert int(question.gold) == sum(int(number) * legs[animal] for number, animal in named)
            else:
                left, right = re.search(r": (.*) = (-?\d+)$", question.text).groups()
                value = re.sub(r"[a-z]", f"({question.gold})", left)
                assert re.fullmatch(r"[0-9()*+ -]+", value)
                assert eval(value) == int(right)
            checked[source] += 1
    assert checked["chain_sum"] == checked["simple_equations"] == 200
    assert checked["leg_counting"] >= 3


def test_no_question_comes_twice_and_the_two_seeds_draw_other_items():
    for source in recipe.GENERATORS:
        study = [question.text for question in islice(recipe.questions(source, recipe.STUDY_SEED), 100)]
        corpus = [question.text for question in islice(recipe.questions(source, recipe.CORPUS_SEED), 100)]
        assert len(set(study)) == 100
        assert len(set(study) & set(corpus)) < 5  # short questions may come up again; the corpus leaves them out


def test_another_version_or_none_is_refused(monkeypatch):
    monkeypatch.setattr(recipe, "GYM_VERSION", "0.0.1")
    with pytest.raises(UsageError, match=r"reasoning-gym \S+ is installed; this recipe was made for 0\.0\.1") as error:
        recipe.study_problems()
    assert "pip install reasoning-gym==0.0.1" in error.value.hint
