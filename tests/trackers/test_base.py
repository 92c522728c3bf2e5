"""Which trackers can be named, and what is said of those that cannot."""

import pytest

from ablation.errors import UsageError
from ablation.plan.lock import verify_lock
from ablation.trackers.base import KINDS, Target, parse_targets, series_of
from ablation.trackers.follow import in_words

from .test_points import RECORD


def test_targets_are_read():
    assert parse_targets(["tensorboard", "tensorboard=a=b"], "--track") == [
        Target("tensorboard", None),
        Target("tensorboard", "a=b"),
    ]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["tensorbord"], "--track: there is no tracker `tensorbord`; did you mean `tensorboard`?"),
        (["tensorboard="], "--track: nothing stands behind the = of `tensorboard=`"),
        (["tensorboard", "tensorboard"], "--track: `tensorboard` is named twice"),
    ],
)
def test_what_cannot_be_meant_is_refused(texts, message):
    with pytest.raises(UsageError) as refused:
        parse_targets(texts, "--track")
    assert refused.value.message == message


def test_a_missing_package_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setitem(KINDS, "wandb", KINDS["wandb"].__class__("no_such_package_here", "wandb", "PROJECT"))
    with pytest.raises(UsageError) as refused:
        parse_targets(["wandb=x"], "--track")
    assert refused.value.message == "--track: the package of wandb is not installed here, so nothing was started"
    assert refused.value.hint == "pip install wandb (or -e '.[trackers]', which has all of them)"


def test_a_series_tells_settings_and_no_text():
    locked = verify_lock(RECORD / "plan.yaml")
    series = series_of(locked.plan, locked.digest, "main/N")
    assert series.about["weighting"] == "rollout" and series.about["arm"] == "N"
    assert series.about["learning_rate"] == locked.plan.training.learning_rate
    assert not {"note", "external", "question"} & set(series.about)
    assert all(len(str(value)) <= 64 for value in series.about.values())
    assert series.key != series_of(locked.plan, locked.digest, "main/C").key


def test_errors_are_told_without_secrets(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "abcdef123456")
    error = ConnectionError("GET http://me:hunter22@host/api?api_key=12345&x=y failed\nwith abcdef123456")
    assert in_words(error) == "ConnectionError: GET http://host/api?api_key=...&x=... failed with ..."
    assert in_words(TimeoutError()) == "TimeoutError"
