import pytest

from ablation.cli import progress
from ablation.cli.progress import PlainReporter, TerminalReporter, make_reporter


def test_plain_lines_say_rate_and_time_left(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with make_reporter() as reporter:
        assert isinstance(reporter, PlainReporter)
        reporter.stage("main/C/readout", 100, 20, 192)
        now[0] += 5
        reporter.progress(30, 500)  # too soon for another line
        now[0] += 15
        reporter.progress(60, 4000)
        reporter.stage_done(40.0, 8000)
    assert capsys.readouterr().err.splitlines() == [
        "main/C/readout: 20 of 100 rollouts are there already",
        "main/C/readout: 60 of 100 rollouts, 200 tok/s, about 20 s left",
        "main/C/readout: 100 rollouts, 8,000 tokens in 40.0 s 200 tok/s",
    ]


def test_a_terminal_shows_a_bar_with_tokens(monkeypatch):
    from io import StringIO

    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn

    out = StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with Progress(
        TextColumn("{task.description}"), MofNCompleteColumn(), TextColumn("{task.fields[tokens]}"), console=console
    ) as bars:
        reporter = TerminalReporter(bars)
        reporter.stage("main/C/readout", 100, 20, 192)
        reporter.progress(60, 4000)
        bars.refresh()
        reporter.stage_done(2.0, 8000)
        reporter.say("[red]not markup[/red]")
    shown = out.getvalue()
    assert "60/100" in shown and "4,000 tok" in shown
    assert "main/C/readout: 100 rollouts, 8,000 tokens in 2.0 s 4,000 tok/s" in shown
    assert "[red]not markup[/red]" in shown


@pytest.mark.parametrize(("tokens", "seconds", "shown"), [(0, 10.0, ""), (100, 0.1, ""), (4000, 2.0, "2,000 tok/s")])
def test_a_rate_needs_tokens_and_time(tokens, seconds, shown):
    assert progress._rate(tokens, seconds) == shown
