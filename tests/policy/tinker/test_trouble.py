"""Errors of the client, by what can be done about them; a key is in none of the words."""

from __future__ import annotations

import pytest

tinker = pytest.importorskip("tinker", reason="the client is not installed")
httpx = pytest.importorskip("httpx")
pytest.importorskip("h2", reason="what the client speaks with is not installed")

from ablation.errors import EngineFailed, UsageError  # noqa: E402
from ablation.policy.tinker.service import Denied, Service, unreadable_metric  # noqa: E402
from ablation.policy.tinker.trouble import understand  # noqa: E402

REQUEST = httpx.Request("POST", "http://service/api/v1/asample")


def answered(status: int, detail: str = "no") -> tinker.APIStatusError:
    return tinker.APIStatusError(detail, response=httpx.Response(status, request=REQUEST), body={"detail": detail})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (answered(429), "wait"),
        (answered(503), "wait"),
        (answered(408), "wait"),
        (answered(425), "wait"),
        (answered(404, "Session not found"), "lost"),
        (answered(410), "lost"),
        (answered(400, "Model model_1 not loaded"), "lost"),
        (answered(400, "Maximum number of LoRA adapters (8) reached"), "wait"),
        (answered(400, "LoRA rank 64 must be between 1 and 8"), "refused"),
        (answered(422), "refused"),
        (answered(401), "key"),
        (answered(403), "key"),
        (answered(402, "no credit"), "money"),
        (tinker.APIConnectionError(request=REQUEST), "wait"),
        (httpx.ReadTimeout("slow"), "wait"),
        (httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(503, request=REQUEST)), "wait"),
        (tinker.TinkerError("The api_key must start with the 'tml-' prefix"), "key"),
    ],
)
def test_kinds(error, kind):
    assert understand(error).kind == kind


def test_the_reason_behind_an_error_counts():
    try:
        try:
            raise answered(400, "Model model_1 not loaded")
        except tinker.APIStatusError as error:
            raise ValueError("Error retrieving result") from error
    except ValueError as error:
        found = understand(error)
    assert found.kind == "lost"
    assert "Model model_1 not loaded" in found.words


def test_a_bug_is_no_trouble_of_the_service():
    assert understand(ZeroDivisionError("x")) is None
    assert understand(ValueError("x")) is None


def test_no_key_in_words():
    words = understand(answered(403, "the key tml-SECRETsecret_1.2 is not valid\nfor this\x1b[31m")).words
    assert "SECRET" not in words
    assert "\n" not in words and "\x1b" not in words


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    said = []
    found = Service("http://127.0.0.1:1", said.append)
    found.said = said
    yield found
    found.close()


def raising(*errors):
    left = list(errors)

    def work():
        if left:
            raise left.pop(0)
        return "done"

    return work


def test_what_passes_is_tried_again_and_said_once(service):
    assert service.do("sampling", raising(answered(503), answered(429), answered(404))) == "done"
    assert service.epoch == 1  # for the one that was lost
    assert len(service.said) == 1
    assert "the service fails while sampling" in service.said[0]


def test_what_does_not_pass_is_raised_at_once(service):
    with pytest.raises(UsageError, match="refuses the key in TINKER_API_KEY"):
        service.do("sampling", raising(answered(401)))
    with pytest.raises(EngineFailed, match="no more credit") as found:
        service.do("sampling", raising(answered(402, "balance is 0")))
    assert "Add credit or raise the limit" in found.value.hint
    with pytest.raises(Denied, match="rank"):
        service.do("sampling", raising(answered(400, "LoRA rank 64")))
    with pytest.raises(ZeroDivisionError):
        service.do("sampling", raising(ZeroDivisionError()))


def test_patience_ends(service):
    service.patience = -1.0
    with pytest.raises(EngineFailed, match="while sampling") as found:
        service.do("sampling", raising(answered(503)))
    assert "the same command goes on from here" in found.value.hint


def test_a_norm_that_is_not_finite_is_read_as_such():
    said = "Error retrieving result: 1 validation error for OptimStepResponse\nmetrics.`skyrl.ai/grad_norm`"
    assert unreadable_metric(ValueError(said))
    assert not unreadable_metric(ValueError("Error retrieving result: 1 validation error for SampleResponse"))


@pytest.mark.parametrize("key", ["tml-SECRET\nMORE", "tml-SECRET\n", "tml-SECRET MORE", "tml-S\u00e4CRET"])
def test_a_key_that_no_request_can_carry_is_refused_without_being_shown(monkeypatch, key):
    """A client would fail with it in a connection's error, which is worth another try for minutes, and say some of it."""
    monkeypatch.setenv("TINKER_API_KEY", key)
    with pytest.raises(UsageError, match="TINKER_API_KEY: the key has a character that none can have") as refused:
        Service(None, print)
    assert "SECRET" not in str(refused.value) and "CRET" not in str(refused.value.hint)


@pytest.mark.parametrize("missing", ["tinker", "h2"])
def test_a_client_that_is_not_there_or_half_there_is_said_before_anything_of_the_key(monkeypatch, missing):
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.setattr("ablation.policy.tinker.service.find_spec", lambda name: None if name == missing else name)
    with pytest.raises(UsageError, match="needs the official client") as refused:
        Service(None, print)
    assert "pip install -e '.[tinker]'" in refused.value.hint
