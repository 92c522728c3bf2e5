import pytest

from ablation.errors import UsageError
from ablation.problems.sandbox import available, bubblewrap

from .needs import needs_sandbox


@needs_sandbox
def test_a_sandbox_that_works_is_named():
    works, name = available.sandbox_available()
    assert works
    assert name.startswith("bubblewrap ")
    assert available.how_code_runs() == name


def test_missing_bubblewrap_is_refused_with_the_way_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(bubblewrap.RISK_VARIABLE, raising=False)
    assert available.sandbox_available() == (False, "bubblewrap (bwrap) is not installed")
    with pytest.raises(UsageError, match="bwrap") as error:
        available.how_code_runs()
    assert "apt-get install bubblewrap" in error.value.hint
    monkeypatch.setenv(bubblewrap.RISK_VARIABLE, bubblewrap.RISK_WORDS)
    assert available.how_code_runs() == "none: run without a sandbox, a risk that the user accepted"


def test_a_bubblewrap_that_may_not_work_here_says_why(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(bubblewrap.RISK_VARIABLE, bubblewrap.RISK_WORDS)  # no way round a sandbox that is broken
    works, why = available.sandbox_available()
    assert not works
    assert "No permissions to create new namespace" in why
    with pytest.raises(UsageError, match="No permissions") as error:
        available.how_code_runs()
    assert "user namespaces" in error.value.hint
