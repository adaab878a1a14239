"""The benchmarks still run and judge: each scenario once, in a size that says nothing of speed."""

from __future__ import annotations

import json
import os
import platform
from xml.etree import ElementTree

import pytest
from bench import __main__ as program
from bench.cases import CASES
from bench.chart import chart
from bench.report import COLUMNS, judged, record
from bench.targets import TARGETS, Check, Rounds, Target, judge

TINY = [case for case in CASES if case.rounds.tiny]
REAL_CLI = "real CLI"


@pytest.mark.longer
@pytest.mark.parametrize("scenario", sorted({case.scenario for case in TINY}))
def test_a_scenario_gives_every_figure_of_its_table(scenario: str) -> None:
    cases = [case for case in TINY if case.scenario == scenario]
    results = program.run(cases, "tiny", None)
    assert set(results) == {case.key for case in cases}
    failed = {
        side for sides in results.values() for side, each in sides.items() if each[0]["failed"]
    }
    assert failed == set()
    found = {name for sides in results.values() for each in sides.values() for name in each[0]}
    # A whole program has a column of its own, and takes too long to be run here.
    missing = {figure for _, figure, _ in COLUMNS[scenario]} - found
    assert missing == ({"wall", "cpu"} if scenario == REAL_CLI else set())


def test_every_scenario_but_the_counted_one_has_a_tiny_case() -> None:
    assert {case.scenario for case in CASES} - {case.scenario for case in TINY} == {"instructions"}


def test_every_target_is_about_a_case_and_sides_that_exist() -> None:
    sides = {case.key: set(case.sides) for case in CASES}
    for target in TARGETS:
        for check in target.checks:
            named = {check.figure, check.other or check.figure}
            assert {name.partition(".")[0] for name in named} <= sides[target.case], target.what


ROUNDS: Rounds = {
    "ours": [{"us": 2.0, "p99": 9.0}, {"us": 3.0, "p99": 4.0}, {"us": 4.0, "p99": 8.0}],
    "official": [{"us": 20.0, "p90": 5.0}, {"us": 27.0, "p90": 9.0}, {"us": 32.0, "p90": 6.0}],
    "flaky": [{"failed": 1.0}, {"us": 6.0}, {"failed": 1.0}],
}


@pytest.mark.parametrize(
    ("check", "value", "is_met"),
    [
        (Check("ours.us", 3, "most"), 3, True),
        (Check("ours.us", 2.9, "most"), 3, False),
        (Check("official.us", 9, other="ours.us"), 9, True),
        (Check("official.us", 10, other="ours.us"), 9, False),
        (Check("official.us", 24, "most", "ours.us", "-"), 24, True),
        (Check("flaky.us", 2, other="ours.us"), 2, True),
        (Check("ours.p99", 1, "most", "official.p90", quietest=True), 0.8, True),
        (Check("ours.nothing", 1), None, False),
        (Check("nobody.us", 1), None, False),
    ],
    ids=str,
)
def test_a_target_is_judged_by_medians_of_what_each_round_shows(
    check: Check, value: float | None, is_met: bool
) -> None:
    verdict = judge(Target("case", "what", (check,)), ROUNDS)
    assert (verdict.value, verdict.is_met) == (value, is_met)


def test_one_of_several_checks_is_enough() -> None:
    checks = (Check("ours.us", 1, "most"), Check("official.us", 20))
    verdict = judge(Target("case", "what", checks), ROUNDS)
    assert (verdict.is_met, verdict.check) == (True, checks[1])


def test_the_record_names_neither_the_machine_nor_a_place_on_it() -> None:
    results = {"import/import": {"ours": [{"net_ms": 1.0, "third_party": 0.0}]}}
    written = json.dumps(record(results, judged(results), "tiny"))
    assert platform.node() not in written
    assert os.path.expanduser("~") not in written
    assert os.getcwd() not in written


def test_the_picture_is_an_svg_with_a_bar_for_each_figure() -> None:
    picture = ElementTree.fromstring(chart([("hook", 4.5), ("<import>", 0.9)], "a & b"))
    space = {"svg": "http://www.w3.org/2000/svg"}
    widths = [float(bar.attrib["width"]) for bar in picture.findall("svg:rect", space)]
    assert len(widths) == 2
    assert widths[0] > widths[1] == 0
