"""Figures: valid Vega-Lite, drawn by the real library, told apart without colour."""

from __future__ import annotations

import json
import re
import struct

import altair
import pytest

from ablation.errors import AblationError
from ablation.measures.estimate import Estimate
from ablation.report.post.charts import drift_chart, ratios_chart, weights_chart
from ablation.report.post.curves import Point
from ablation.report.post.draw import Drawer, plain_svg
from ablation.report.post.flow import FamilyFlow, Flow, RunOfArm
from ablation.report.post.flow_chart import flow_chart, flow_in_words
from ablation.report.post.theme import DASHES, SERIES, SHAPES, VARIABLES, for_page
from ablation.training.run_audit import UpdateAudit


def run_of(arm, updates=5, readout="yes", label="STABLE", stopped=None, family="main"):
    return RunOfArm(family, arm, updates, 5, readout, 348 if readout == "yes" else None, stopped, False, label)


FLOW = Flow(
    families=(
        FamilyFlow(
            "main",
            348,
            (
                run_of("C", label="DAMAGED"),
                run_of("N"),
                run_of("X", 3, "no", "STOPPED", {"rule": "logprob_fell", "update": 3}),
                run_of("XP", 4, "no", None),
                run_of("XK", 0, "no", None),
            ),
        ),
        FamilyFlow("replication", None, ()),
    ),
    compared=(("held-out", "N@5", 144, "deviation 1"), ("main", "N@8", None, None)),
    planned_sets=("never_used",),
)


def point(family, arm, stage, value, low=None, high=None):
    found = Estimate(value, low, high, 0.9, 58, None if low is not None else "degenerate", "percentile")
    return Point(family, arm, "C", stage, 72, {"logprob": found, "top20_entropy": found})


POINTS = [
    point(family, arm, stage, 0.1 * place, 0.1 * place - 0.05 if place else None, 0.1 * place + 0.05 if place else None)
    for family in ("main", "replication")
    for arm in ("N", "X")
    for place, stage in enumerate(("update-1", "update-2", "readout"))
]
SHARES = {"negative_share": 0.56, "net_share": -0.12, "truncated_share": 0.24, "kl_share": 0.0}
UPDATES = [UpdateAudit("main", arm, {"update": k, "weights": SHARES}, 0, []) for arm in "CN" for k in (1, 2)]
SPECS = {
    "drift": drift_chart(POINTS, 2),
    "weights": weights_chart(UPDATES),
    "flow": flow_chart(FLOW, False),
    "ratios": ratios_chart([("main", "C", Estimate(1.2)), ("main", "N", Estimate(0.7, 0.6, 0.8, 0.9, 58))], "tokens"),
}


@pytest.fixture(scope="module")
def drawer():
    with Drawer() as found:
        yield found


@pytest.mark.parametrize("name", SPECS)
def test_a_figure_is_valid_vega_lite_and_is_drawn(name, drawer):
    altair.Chart.from_dict(SPECS[name])  # raises for what the schema does not know
    svg, png = drawer.draw(SPECS[name])
    width, height = struct.unpack(">II", png[16:24])
    box = [float(one) for one in re.search(r'viewBox="([^"]*)"', svg)[1].split()]
    assert (width, height) == pytest.approx((2 * box[2], 2 * box[3]), abs=2)
    assert 300 < box[2] < 700
    names = set(re.findall(r"<([a-zA-Z]+)", svg))
    assert names <= {"svg", "g", "path", "line", "rect", "text", "tspan", "circle"}
    assert not re.search(r"(style|class|id|href|on[a-z]+)=", svg)
    assert (svg, png) == drawer.draw(SPECS[name])


def test_series_differ_in_colour_shape_and_dash_and_are_readable_on_white():
    assert len(set(SERIES)) == len(set(SHAPES)) == len({tuple(one) for one in DASHES}) == len(SERIES) == 6

    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert all(1.05 / (luminance(one) + 0.05) >= 4.5 for one in SERIES)  # WCAG 2.2, contrast of text


def test_the_page_has_a_variable_for_every_colour_of_a_figure(drawer):
    for spec in SPECS.values():
        inside = for_page(drawer.draw(spec)[0])
        assert set(re.findall(r"#[0-9a-fA-F]{3,6}\b", inside)) == set()
        assert set(re.findall(r"var\((--[a-z0-9-]+)\)", inside)) <= set(VARIABLES.values())


def test_the_flow_says_what_left_and_why(drawer):
    words = flow_in_words(FLOW, False)
    assert words == [
        ("Family main: planned", "5 runs: C, N, X, XP, XK; start: 348 rollouts"),
        ("Not begun", "XK"),
        ("Trained", "all 5 updates: C, N; 3 of 5 updates: X; 4 of 5 updates: XP"),
        ("Left before the readout", "stopped: X, by logprob_fell after update 3; not read out yet: XP"),
        ("Read out and judged", "348 rollouts each, none left out; DAMAGED: C; STABLE: N"),
        ("Compared with the start on other problems", "held-out: N@5, 144 rollouts each (deviation 1); main: N@8, not finished"),
        ("Planned, not sampled", "Never-used"),
    ]
    drawn = "".join(re.findall(r">([^<]+)<", drawer.draw(SPECS["flow"])[0]))
    for word in ("Not begun", "logprob_fell", "DAMAGED: C", "deviation 1"):
        assert word in drawn


def test_what_is_no_drawing_is_left_out():
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="9" onload="x()">'
        '<script>x()</script><a xlink:href="javascript:x()"><text>a</text></a><style>*{}</style>'
        '<g class="c" style="fill:red"><path d="M0,0h1" fill="url(#g)"/><text x="1">&lt;b&gt;</text></g><path d=""/></svg>'
    )
    assert plain_svg(svg) == (
        '<svg xmlns="http://www.w3.org/2000/svg" width="9"><g><path d="M0,0h1" /><text x="1">&lt;b&gt;</text></g></svg>'
    )


def test_a_drawing_process_that_dies_is_an_error_in_words():
    with Drawer() as drawer:
        with pytest.raises(AblationError, match="could not be drawn") as error:
            drawer.draw({"mark": {"type": "no such mark"}})
        assert "--no-figures" in error.value.hint


def test_specifications_hold_plain_data_alone():
    for spec in SPECS.values():
        assert json.loads(json.dumps(spec)) == spec
        assert "url" not in json.dumps(spec)


def test_a_file_of_the_working_folder_is_no_module_of_the_drawing_process(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit(77)")
    monkeypatch.chdir(tmp_path)
    with Drawer() as drawer:
        assert drawer.draw(flow_chart(FLOW, False))[0].startswith("<svg")
