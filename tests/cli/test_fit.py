"""Lines for a terminal, by hand."""

from ablation.cli.fit import fitted


def test_what_follows_stands_below_the_text_of_its_line():
    assert fitted("phase 2  held-out: N@3: start: yes, subject: yes", 30) == (
        "phase 2  held-out: N@3: start:\n         yes, subject: yes"
    )
    assert fitted("  - that nobody wrote the folder anew", 26) == "  - that nobody wrote the\n    folder anew"
    assert fitted("    5,568  finish reasons against the cap", 30) == "    5,568  finish reasons\n           against the cap"
    assert fitted("one two three four five six", 21) == "one two three four\n  five six"


def test_what_fits_and_what_cannot_be_cut_stays():
    assert fitted("short\n\nlines", 20) == "short\n\nlines"
    assert fitted("digest " + "a" * 64, 40) == "digest\n  " + "a" * 64
    command = "next     ablation run --all --plan plans/a-long-name.yaml"
    assert fitted(command, 30) == command
