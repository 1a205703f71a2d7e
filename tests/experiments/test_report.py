"""Scores, claims and the report, from a ledger that the test writes."""

import dataclasses
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from albert_tf.report.page import to_html, to_markdown
from experiments.ledger import DIVERGED, FINISHED, Ledger
from experiments.plan import Planner, TaskData, Text
from experiments.report import (
    _circumstances,
    _entries,
    _reached,
    report,
    verdict,
)
from experiments.results import Finding, TableResults
from experiments.scales import SCALES
from experiments.tables import TABLES, Claim

SEEDS = (1, 2, 3)
PLANNER = Planner(SCALES["tiny"], Text("books"), [TaskData("MRPC", "mrpc")])
ROWS = [row.name for row in TABLES["sharing"].rows]
# Masked-LM accuracy of each row and seed; one row diverges in seed 3.
ACCURACY = {
    (row, seed): 0.30
    + 0.01 * place
    + 0.001 * seed**2 * (place % 3 + place // 5)
    for place, row in enumerate(ROWS)
    for seed in SEEDS
}


def record_pretraining(ledger, cell, accuracy, rate=100.0, seconds=1000.0):
    ledger.record(
        cell.pretraining,
        FINISHED,
        {
            "evaluation": {
                "masked_lm_accuracy": accuracy,
                "most_frequent_token_accuracy": 0.075,
                "sentence_order_accuracy": 0.7,
            },
            "curve": [
                {"step": 10, "masked_lm_accuracy": 0.1, "masked_lm_loss": 6.0},
                {
                    "step": 20,
                    "masked_lm_accuracy": accuracy,
                    "masked_lm_loss": 6.0 - accuracy,
                },
            ],
            "sequences_per_second": rate,
        },
        seconds,
    )


@pytest.fixture
def results(tmp_path):
    ledger = Ledger(str(tmp_path))
    cells = PLANNER.cells(TABLES["sharing"], SEEDS)
    for cell in cells:
        if (cell.row.name, cell.seed) == ("shared-FFN E=768", 3):
            ledger.record(cell.pretraining, DIVERGED, {}, 5.0)
            continue
        accuracy = ACCURACY[cell.row.name, cell.seed]
        if (cell.row.name, cell.seed) == ("shared-FFN E=768", 2):
            accuracy = 0.2
        record_pretraining(ledger, cell, accuracy)
        evaluation = {"accuracy": 0.6, "f1": accuracy}
        figures = {
            "evaluation": evaluation,
            "metric": "f1",
            "baseline": {"tfidf_accuracy": 0.1, "tfidf_f1": 0.777},
            "learning_rate": 5e-4 if "FFN" in cell.row.name else 3e-4,
        }
        ledger.record(cell.tasks["MRPC"], FINISHED, figures, 30.0)
    return TableResults(TABLES["sharing"], cells, ledger)


def finding(results, text, column):
    (found,) = (
        f
        for f in results.findings()
        if f.claim.text.startswith(text) and f.column == column
    )
    return found


def test_a_claim_is_tested_by_its_difference_in_each_seed(results):
    found = finding(results, "Sharing all costs less", "masked-LM accuracy")
    differences = [
        (ACCURACY["not-shared E=768", s] - ACCURACY["all-shared E=768", s])
        - (ACCURACY["not-shared E=128", s] - ACCURACY["all-shared E=128", s])
        for s in SEEDS
    ]
    assert found.differences == pytest.approx(differences)
    t = np.mean(differences) / (np.std(differences, ddof=1) / np.sqrt(3))
    assert found.p_value == pytest.approx(stats.t.sf(t, df=2))
    assert found.agreeing == sum(d > 0 for d in differences)


def test_a_claim_that_no_seed_tests_is_named(results, tmp_path):
    sharing = dataclasses.replace(
        results.table,
        claims=[
            Claim("A.", {ROWS[0]: 1, ROWS[2]: -1}),
            Claim("B.", {ROWS[0]: 1, ROWS[3]: -1}, ["tasks"]),
        ],
    )
    ledger = Ledger(str(tmp_path / "other"))
    found = TableResults(sharing, results.cells, ledger)
    assert found.untested() == []
    for cell in results.cells:
        if cell.row.name == ROWS[2]:
            ledger.record(cell.pretraining, DIVERGED, {}, 5.0)
    found = TableResults(sharing, results.cells, ledger)
    assert [part.text for part in _paragraphs(found)] == [
        f"A. Not tested: {ROWS[0]} has no score and {ROWS[2]} diverged (3 of "
        "3 seeds).",
    ]
    for cell in results.cells:
        if cell.row.name in (ROWS[0], ROWS[3]):
            record_pretraining(ledger, cell, 0.3)
    (cell, *_) = results.cells
    figures = {"evaluation": {"f1": 0.6}, "metric": "f1"}
    ledger.record(cell.tasks["MRPC"], FINISHED, figures, 30.0)
    found = TableResults(sharing, results.cells, ledger)
    assert [part.text for part in _paragraphs(found)] == [
        f"A. Not tested: {ROWS[2]} diverged (3 of 3 seeds).",
        f"B. Not tested on MRPC: {ROWS[3]} has no score.",
    ]


def _paragraphs(results):
    page = report({"sharing": results}, "Scale tiny.", results.ledger)
    parts = page.sections[0].parts
    return [p for p in parts if "Not tested" in getattr(p, "text", "")]


def test_scores_of_tasks_are_those_of_their_best_metric(results):
    assert results.values("all-shared E=128", "MRPC") == [
        ACCURACY["all-shared E=128", seed] for seed in SEEDS
    ]


def test_a_seed_without_all_rows_is_left_out(results):
    claim = Claim("x", {"shared-FFN E=768": 1, "all-shared E=768": -1})
    found = results._examine(claim, "masked-LM accuracy")
    assert len(found.differences) == 2


def test_a_model_that_has_not_learned_decides_no_claim(results):
    claim = Claim("x", {"shared-FFN E=768": 1, "all-shared E=768": -1})
    found = results._examine(claim, "masked-LM accuracy")
    assert verdict(found) == "not comparable"


def test_rows_fine_tuned_at_different_rates_decide_no_claim(results):
    claim = Claim("x", {"shared-FFN E=128": 1, "all-shared E=128": -1})
    words = "rates of fine-tuning differ"
    assert verdict(results._examine(claim, "MRPC")) == words
    assert verdict(results._examine(claim, "mean of the tasks")) == words
    assert not results._examine(claim, "masked-LM accuracy").problem
    assert results.rates("MRPC").keys() == {3e-4, 5e-4}


def test_each_seed_may_have_a_rate_of_its_own(tmp_path):
    ledger = Ledger(str(tmp_path))
    cells = PLANNER.cells(TABLES["groups"], (1, 2))
    for cell in cells:
        record_pretraining(ledger, cell, 0.3 + 0.001 * cell.seed)
        figures = {
            "evaluation": {"f1": 0.6},
            "metric": "f1",
            "learning_rate": 1e-4 * cell.seed,
        }
        ledger.record(cell.tasks["MRPC"], FINISHED, figures, 30.0)
    results = TableResults(TABLES["groups"], cells, ledger)
    assert not finding(results, "More", "MRPC").problem


def groups_with(tmp_path, task, figures_of):
    """Table groups, fine-tuned on one task with these figures by cell."""
    ledger = Ledger(str(tmp_path))
    planner = Planner(SCALES["tiny"], Text("books"), [TaskData(task, "data")])
    cells = planner.cells(TABLES["groups"], (1, 2, 3))
    for cell in cells:
        record_pretraining(ledger, cell, 0.3)
        figures = figures_of(cell)
        ledger.record(cell.tasks[task], FINISHED, figures, 30.0)
    return TableResults(TABLES["groups"], cells, ledger)


def test_a_seed_whose_rates_differ_is_left_out(tmp_path):
    def figures(cell):
        is_other = (cell.row.name, cell.seed) == ("groups=12", 2)
        return {
            "evaluation": {"f1": 0.6 + 0.01 * cell.seed * is_other},
            "metric": "f1",
            "learning_rate": 1e-4 if is_other else 2e-4,
        }

    results = groups_with(tmp_path, "MRPC", figures)
    found = finding(results, "More", "MRPC")
    assert (found.differences, found.problem) == ([0.0, 0.0], "")


def test_squad_is_shown_in_per_cent(tmp_path):
    def figures(cell):
        return {
            "evaluation": {"f1": 81.2},
            "metric": "f1",
            "baseline": {"tfidf_f1": 31.5},
        }

    results = groups_with(tmp_path, "SQuAD2.0", figures)
    text = to_markdown(
        report({"groups": results}, "Scale.", results.ledger),
        lambda name, png: name,
    )
    assert "| 81.2 (81.2–81.2) |" in text
    (line,) = (x for x in text.splitlines() if x.startswith("| the sentence"))
    assert line.endswith("| 31.5 |")


def test_a_score_that_is_not_defined_is_named(tmp_path):
    def figures(cell):
        score = None if cell.seed == 2 else 0.7
        return {"evaluation": {"pearson": score}, "metric": "pearson"}

    results = groups_with(tmp_path, "STS-B", figures)
    text = to_html(report({"groups": results}, "Scale.", results.ledger))
    assert "70.0 (70.0–70.0), not defined in 1" in text
    assert len(finding(results, "More", "STS-B").differences) == 2


def test_the_last_bit_of_a_float_decides_no_claim(tmp_path):
    def figures(cell):
        # The differences of floats are not all alike.
        more = 0.1 if cell.row.name == "groups=12" else 0.0
        score = 0.1 * cell.seed + more
        return {"evaluation": {"f1": score}, "metric": "f1"}

    found = finding(groups_with(tmp_path, "MRPC", figures), "More", "MRPC")
    assert verdict(found).startswith("all seeds differ by the same, which")


def test_a_share_is_that_of_the_seeds_that_reach_it():
    assert _reached([0.5, np.inf]) == "50% (1 of 2 seeds)"
    assert _reached([0.25, 0.75]) == "50%"
    assert _reached([np.inf]) == "never"


def test_rates_of_training_are_in_relation_to_the_unit_of_a_table(tmp_path):
    ledger = Ledger(str(tmp_path))
    cells = PLANNER.cells(TABLES["bert"], [1, 2])
    for cell in cells:
        speed = 1 / 4 if cell.row.name == "ALBERT xxlarge" else 1
        record_pretraining(ledger, cell, 0.3, 100.0 * cell.seed * speed)
    results = TableResults(TABLES["bert"], cells, ledger)
    text = to_markdown(
        report({"bert": results}, "Scale.", ledger), lambda name, png: name
    )
    measured, published = (
        x for x in text.splitlines() if x.startswith("| ALBERT xxlarge | ")
    )
    assert "| 38 | 0.25 |" in measured
    assert published == "| ALBERT xxlarge | 235 | 0.3 |"


def test_minutes_leave_out_what_was_killed(tmp_path):
    ledger = Ledger(str(tmp_path))
    cells = PLANNER.cells(TABLES["groups"], [1, 2, 3])
    # 96,000 sequences take 960 seconds at a rate of 100.
    seconds = {"groups=1": [960, 1020, 300], "groups=2": [300, 600, 60]}
    for cell in cells:
        for took in seconds.get(cell.row.name, [])[cell.seed - 1 : cell.seed]:
            record_pretraining(ledger, cell, 0.3, seconds=took)
    results = TableResults(TABLES["groups"], cells, ledger)
    assert results.minutes("groups=1") == [16, 17]
    text = to_markdown(
        report({"groups": results}, "Scale.", ledger), lambda name, png: name
    )
    starts = [
        [part.strip() for part in line.split("|")[2:6]]
        for line in text.splitlines()
        if line.startswith(("| row | seeds", "| groups="))
    ]
    assert starts == [
        ["seeds", "parameters", "minutes", "masked-LM accuracy"],
        ["3 of 3", "477,184", "16", "30.0 (30.0–30.0)"],
        ["3 of 3", "675,456", "", "30.0 (30.0–30.0)"],
        ["0 of 3", "1,072,000", "", ""],
    ]


def test_a_task_has_its_metric_and_the_score_of_a_linear_model(
    results, tmp_path
):
    text = to_markdown(page_of(results, tmp_path), lambda name, png: name)
    assert " | MRPC f1 |" in text
    (line,) = (x for x in text.splitlines() if x.startswith("| TF-IDF with"))
    assert "| 77.7 |" in line
    assert "The rates of fine-tuning on MRPC differ, and claims are" in text


def test_published_columns_that_are_empty_are_not_shown(tmp_path):
    ledger = Ledger(str(tmp_path))
    found = {
        name: TableResults(
            TABLES[name], PLANNER.cells(TABLES[name], [1]), ledger
        )
        for name in ("objective", "sharing")
    }
    lines = to_markdown(
        report(found, "Scale.", ledger), lambda name, png: name
    ).splitlines()
    header, other = (x for x in lines if x.startswith("| row | million"))
    assert header.endswith("masked-LM accuracy | NSP accuracy | SOP accuracy |")
    assert any(x.endswith("| 79.2 | 54.5 | 90.5 | 52.0 |") for x in lines)
    assert "NSP accuracy" not in other
    assert any("trained on Wikipedia and BookCorpus" in x for x in lines)


def test_hours_are_those_of_the_reported_tables(results, tmp_path):
    other = PLANNER.cells(TABLES["groups"], [4])[-1]
    results.ledger.record(other.pretraining, FINISHED, {}, 36e6)
    text = to_markdown(page_of(results, tmp_path), lambda name, png: name)
    (line,) = (x for x in text.splitlines() if x.startswith("Computed on "))
    # 23 models of 1,030 seconds, and one that diverged after 5.
    assert f": {(23 * 1030 + 5) / 3600:.1f} hours of a core in all" in line
    assert "rates are no measurement" in line
    assert "a job that was killed only the last part counts" in line


def test_the_cores_of_jobs_count_and_those_of_other_tables_do_not(tmp_path):
    ledger = Ledger(str(tmp_path))
    (cell, *_) = PLANNER.cells(TABLES["groups"], [1])
    (other, *_) = PLANNER.cells(TABLES["depth"], [1])
    for one, cores in ((cell, 4), (other, 16)):
        ledger.record(one.pretraining, FINISHED, {}, 3600.0, cores=cores)
    found = _circumstances(_entries(ledger, {"": mock.Mock(cells=[cell])}))
    assert "every model on 4 cores at most" in found
    assert ": 4.0 hours of a core in all" in found


def test_all_versions_are_named():
    entries = [
        {"seconds": 1, "processor": "A", "versions": {"keras": version}}
        for version in ("3.14", "3.15", "3.14")
    ]
    text = _circumstances(entries)
    assert text.endswith("Versions: keras 3.14 and 3.15.")


def test_verdicts_are_beside_those_that_chance_gives(results, tmp_path):
    text = to_markdown(page_of(results, tmp_path), lambda name, png: name)
    tested = [
        found
        for found in results.findings()
        if found.p_value == found.p_value and not found.problem
    ]
    assert len(tested) > 3
    assert (
        f"without correction for the number of claims ({len(tested)} have a p; "
        f"of as many without any effect {0.1 * len(tested):.1f} would show, "
        "or their opposites)"
    ) in text
    assert "less than 5 points above copying and guessing" in text


def test_one_seed_has_no_p_value():
    assert verdict(Finding(Claim("x", {}), "c", [0.1], float("nan"))) == (
        "one seed cannot tell"
    )


@pytest.mark.parametrize(
    "p_value,words",
    [
        (0.01, "shows"),
        (0.99, "the opposite shows"),
        (0.5, "cannot be told"),
        (
            float("nan"),
            "all seeds differ by the same, which gives no test",
        ),
    ],
)
def test_a_verdict_in_words(p_value, words):
    assert verdict(Finding(Claim("x", {}), "c", [0.1, 0.2], p_value)) == words


def page_of(results, tmp_path):
    return report({"sharing": results}, "Scale tiny.", results.ledger)


def test_a_row_has_its_median_range_and_what_befell_it(results, tmp_path):
    saved = {}
    text = to_markdown(
        page_of(results, tmp_path),
        lambda name, png: saved.setdefault(name, name),
    )
    low, middle, high = (ACCURACY["shared-FFN E=128", s] for s in SEEDS)
    (line, *_) = (
        x for x in text.splitlines() if x.startswith("| shared-FFN E=128 |")
    )
    assert f"| {100 * middle:.1f} ({100 * low:.1f}–{100 * high:.1f}) |" in line
    assert line.startswith("| shared-FFN E=128 | 3 of 3 |")
    (line, *_) = (
        x for x in text.splitlines() if x.startswith("| shared-FFN E=768 |")
    )
    state = "2 of 3, 1 diverged, 1 not comparable"
    assert line.startswith(f"| shared-FFN E=768 | {state} |")
    assert "| all-shared E=768 | 31 | 88.6 | 81.5 | 79.2 |" in text
    assert "a dot for each seed. Hatched: not comparable." in text
    assert sorted(saved) == [
        "sharing-curves.png",
        "sharing-masked-lm-accuracy.png",
        "sharing-mrpc.png",
        "sharing-sizes.png",
        "sharing-sop-accuracy.png",
    ]


def test_a_report_may_be_written_before_anything_is_measured(tmp_path):
    results = {
        name: TableResults(
            table, PLANNER.cells(table, [1]), Ledger(str(tmp_path))
        )
        for name, table in TABLES.items()
        if name not in ("data", "domain")
    }
    text = to_html(report(results, "Scale.", Ledger(str(tmp_path))))
    assert "Nothing has been computed yet." in text
    assert "<td>ALBERT xxlarge</td>" in text


def test_figures_of_measures_are_drawn(tmp_path):
    ledger = Ledger(str(tmp_path))
    cells = PLANNER.cells(TABLES["layers"], [1])
    for cell in cells:
        record_pretraining(ledger, cell, 0.3)
        found = {"l2_distance": [1.0, 2.0], "cosine_similarity": [0.9, 0.8]}
        ledger.record(cell.measures["layers"], FINISHED, found, 3.0)
    results = TableResults(TABLES["layers"], cells, ledger)
    text = to_html(report({"layers": results}, "Tiny: 4. Alike.", ledger))
    assert "L2 distance of input and output by layer" in text
    (entry, *_) = ledger.entries()
    assert (
        "Cosine of input and output by layer; a line for each seed. Tiny: 4; "
        f"{entry['processor']}, every model on one core." in text
    )


def test_early_exit_is_beside_a_fixed_depth_of_as_much_arithmetic(tmp_path):
    ledger = Ledger(str(tmp_path))
    cells = PLANNER.cells(TABLES["any_depth"], [1, 2])
    for cell in cells:
        record_pretraining(ledger, cell, 0.3)
        exits = {
            "applications": 2.9,
            "most_applications": 4,
            "accuracy": 0.30 + 0.01 * cell.seed,
            "fixed_accuracy": 0.315,
            "full_accuracy": 0.33,
        }
        outputs = ("masked_lm_logits", "sentence_order_logits")
        accuracies = {"masked_lm_accuracy": 0.3, "sentence_order_accuracy": 0.7}
        found = {
            "depths": [{"applications": 1, "flops": 100, **accuracies}],
            "early_exit": dict.fromkeys(outputs, exits),
        }
        ledger.record(cell.measures["any_depth"], FINISHED, found, 3.0)
    results = TableResults(TABLES["any_depth"], cells, ledger)
    text = to_markdown(
        report({"any_depth": results}, "Scale.", ledger), lambda name, png: name
    )
    scores = "31.5 (31.0–32.0) | 31.5 (31.5–31.5) | 33.0 (33.0–33.0)"
    assert f"always all layers | masked tokens | 2.9 of 4 | {scores}" in text
    assert "for masked tokens in 2 of 4 models" in text
    assert "masked-LM accuracy by operations for a sequence" in text


def test_rows_of_equal_work_are_compared_by_it(tmp_path):
    ledger = Ledger(str(tmp_path))
    cells = PLANNER.cells(TABLES["peers"], [1])
    for cell, accuracy in zip(cells, (0.3, 0.2, 0.4), strict=True):
        record_pretraining(ledger, cell, accuracy)
    results = TableResults(TABLES["peers"], cells, ledger)
    text = to_markdown(
        report({"peers": results}, "Scale.", ledger), lambda name, png: name
    )
    ours = "| normuon-0.004 | transformers-0.0"
    # Losses fall from 6 at step 10 to 5.7, 5.8 and 5.6 at 20.
    assert f"{ours}001 | operations | 83% | +0.000 | +0.100 |" in text
    assert f"{ours}005 | operations | never | -0.100 | -0.100 |" in text
    assert f"{ours}005 | seconds | never | -0.100 | -0.100 |" in text
    assert "peers-curves-seconds.png" in text


def test_untrained_models_are_drawn(tmp_path):
    ledger = Ledger(str(tmp_path))
    cells = PLANNER.cells(TABLES["initialization"], [1])
    names = ("output_change", "token_similarity", "gradient_norm")
    depths = [
        {"applications": depth, "sensitivity": 0.5}
        | {name: [0.1] * depth for name in names}
        for depth in (2, 4)
    ]
    for cell in cells:
        for unit in cell.units:
            ledger.record(unit, FINISHED, {"depths": depths}, 3.0)
    results = TableResults(TABLES["initialization"], cells, ledger)
    text = to_html(report({"initialization": results}, "Scale.", ledger))
    assert "Mean cosine of two tokens by application" in text
    assert "Sensitivity of the output to the shared weights" in text
    assert "seeds" not in text.split("<table>")[1]


# The rows of table domain: word accuracy and nats on the domain, general.
ON_TEXTS = {
    "no adaptation": ((0.10, 9.0), (0.30, 4.0)),
    "longer on general text": ((0.11, 8.9), (0.31, 3.9)),
    "adaptation": ((0.20, 7.0), (0.20, 6.0)),
    "adaptation with new vocabulary": ((0.25, 6.0), (0.15, 6.5)),
    "from scratch": ((0.15, 8.0), (0.05, 9.5)),
}


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """Table domain, of which general loss varies with the seed."""
    ledger = Ledger(str(tmp_path_factory.mktemp("adapted")))
    planner = Planner(SCALES["tiny"], Text("books", domain="medical"))
    cells = planner.cells(TABLES["domain"], [1, 2])
    for cell in cells:
        record_pretraining(ledger, cell, 0.3)
        pairs = zip(("domain", "general"), ON_TEXTS[cell.row.name], strict=True)
        for name, (accuracy, loss) in pairs:
            found = {
                "word_accuracy": accuracy,
                "word_loss": loss + 0.02 * cell.seed * accuracy,
                "sentence_order_accuracy": 0.8,
            }
            ledger.record(cell.measures[name], FINISHED, found, 3.0)
    return TableResults(TABLES["domain"], cells, ledger)


def test_texts_have_columns_of_their_own(adapted):
    assert adapted.columns == [
        f"{text} {score}"
        for text in ("domain", "general")
        for score in ("word accuracy", "nats per word", "SOP accuracy")
    ]
    text = to_html(report({"domain": adapted}, "Scale.", adapted.ledger))
    assert "9.003 (9.002–9.004)" in text
    assert "whole words of letters are masked" in text


def test_a_claim_on_a_text_is_tested_on_it_alone(adapted):
    claim = "Adaptation is better than none."
    columns = [f.column for f in adapted.findings() if f.claim.text == claim]
    assert {column.split(" ")[0] for column in columns} == {"domain"}
    forgotten = finding(
        adapted, "Adaptation is worse on general", "general word accuracy"
    )
    assert forgotten.mean == pytest.approx(0.10)


def test_a_smaller_loss_is_better(adapted):
    found = finding(
        adapted,
        "Adaptation is better than none",
        "domain nats per word",
    )
    assert found.agreeing == 2
    assert found.mean == pytest.approx(2.0, abs=0.01)


def test_losses_of_different_vocabularies_are_not_compared(adapted):
    claim = "Adaptation is better with new vocabulary than without."
    columns = [f.column for f in adapted.findings() if f.claim.text == claim]
    assert columns == ["domain word accuracy", "domain SOP accuracy"]


def test_an_objective_is_measured_where_the_text_has_both_labels(tmp_path):
    ledger = Ledger(str(tmp_path))
    cells = PLANNER.cells(TABLES["objective"], [1])
    for cell in cells:
        record_pretraining(ledger, cell, 0.3)
        for name, evaluation in (
            (
                "nsp",
                {
                    "next_sentence_accuracy": 0.6,
                    "majority_next_sentence_accuracy": 1.0,
                },
            ),
            (
                "sop",
                {
                    "sentence_order_accuracy": 0.7,
                    "majority_order_accuracy": 0.51,
                },
            ),
            (
                "nsp_held_out",
                {
                    "next_sentence_accuracy": 0.8,
                    "majority_next_sentence_accuracy": 0.51,
                },
            ),
        ):
            if cell is not cells[0] or name != "nsp_held_out":
                figures = {"evaluation": evaluation}
                ledger.record(cell.measures[name], FINISHED, figures, 2.0)
    # One row has been fine-tuned before another was measured.
    figures = {"evaluation": {"f1": 0.6}, "metric": "f1"}
    ledger.record(cells[0].tasks["MRPC"], FINISHED, figures, 2.0)
    results = TableResults(TABLES["objective"], cells, ledger)
    assert results.columns[-1] == "MRPC"
    assert "SOP accuracy" in results.columns
    assert "NSP accuracy" not in results.columns
    own = "NSP accuracy with held-out segments"
    assert results.values("SOP", own) == [0.8]
    # Rows that differ in their objective are not compared by it.
    compared = {finding.column for finding in results.findings()}
    assert compared == {"masked-LM accuracy"}
