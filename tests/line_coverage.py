"""A pytest plugin that reports which share of the lines the tests run.

`.ci/run` loads it (`-p line_coverage`). SlipCover instruments every line once;
coverage.py makes tests with models half as slow again on Python 3.11. What
programs run in processes of their own does not count.
"""

import json
import pathlib

import pytest
import slipcover

ROOT = pathlib.Path(__file__).parents[1]
SOURCES = [str(ROOT / name) for name in ("albert_tf", "bin", "data_prep")]


class LineCoverage:
    """Measures this process; xdist's controller merges its workers' results."""

    def __init__(self):
        self.slipcover = slipcover.Slipcover(source=SOURCES)
        matcher = slipcover.FileMatcher(sources=SOURCES)
        slipcover.ImportManager(self.slipcover, matcher).__enter__()
        self.found = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        found = self.slipcover.get_coverage()
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["line_coverage"] = json.dumps(found)
        self.found.append(found)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        # A worker that crashed has none.
        if output := getattr(node, "workeroutput", None):
            self.found.append(json.loads(output["line_coverage"]))

    def pytest_terminal_summary(self, terminalreporter):
        total, *others = self.found
        for other in others:
            slipcover.merge_coverage(total, other)
        summary = total["summary"]
        covered, missing = summary["covered_lines"], summary["missing_lines"]
        terminalreporter.write_line(
            f"Lines run by the tests: {covered / (covered + missing):.1%} of "
            f"{covered + missing}."
        )


def pytest_addoption(pluginmanager):
    # Before tests/conftest.py imports the library.
    pluginmanager.register(LineCoverage())
