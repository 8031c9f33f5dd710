"""What a step is estimated to take: counts are the engine's own, and the tables have a line for each size."""

from __future__ import annotations

import pytest

from benchmarks.gpu.contenders import MODELS, SST, OurModel
from benchmarks.gpu.cost import Cost
from benchmarks.gpu.estimate import main, measures, step_of
from benchmarks.gpu.steps import direction_costs, levels
from benchmarks.gpu.trees import sst_like_trees
from foldbatch.engines.cuda.rates import CARDS


@pytest.fixture(scope="module")
def trees():
    return sst_like_trees(8, seed=2, words=50)


def test_a_dry_count_is_that_of_a_real_step(trees):
    ours = OurModel(MODELS[SST], 20, 50, "cuda-on-cpu")
    direction_costs(ours, trees)
    real = sum(direction_costs(ours, trees).values(), Cost())
    assert (real.copies_in, real.copies_out) == (1, 1)  # once its parameters are there
    dry = step_of(trees, 20, 50).cost
    assert (dry.launches, dry.products, dry.operations) == (real.launches, real.products, real.operations)


def test_what_calls_do_is_what_the_driver_is_asked(trees):
    step = step_of(trees, 20, 50)
    products = [work for work in step.works if work.is_product]
    assert len(products) == step.cost.products
    assert sum(work.operations for work in products) == step.cost.operations
    assert {work.where for work in step.works[-2:]} == {"update"}
    assert 0 < step.control < 10**5
    assert step.nbytes > 0


def test_rates_have_the_names_of_measured_ones():
    rates = measures(CARDS["H200"])
    assert rates["copy"] == 4.3e12
    assert rates["product tf32"] == 495e12
    assert rates["launch"] > rates["launch in a graph"] > 0


def test_what_was_measured_of_a_card_is_taken(tmp_path, capsys):
    file = tmp_path / "gpu.json"
    file.write_text('{"rates": {"launch": 1.0, "product fp32": 1e12}}', encoding="utf-8")
    main(["--hidden", "6", "--batch", "1", "--precision", "fp32", "--rates", str(file)])
    text = capsys.readouterr().out
    assert "H200, measured" in text
    row = text.splitlines()[-1].split("|")
    straight, captured, _ = map(float, row[5].split(" / "))
    assert straight > 50_000  # ms: a second a launch
    assert 1000 < captured < 1001


def test_the_tables_have_a_line_for_each_size_and_precision(capsys):
    main(["--hidden", "6", "--batch", "1", "2", "--card", "A100", "--levels"])
    text = capsys.readouterr().out
    assert "on A100" in text
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"]
    least, estimated = rows[2:4], rows[6:]
    assert [row[:2] for row in least] == [["6", "1"], ["6", "2"]]
    assert levels(sst_like_trees(1)) == int(least[0][2])
    assert [row[1:3] for row in estimated] == [[n, kind] for n in "12" for kind in ("fp32", "tf32")]
    for row in estimated:
        straight, captured, persistent = map(int, row[3].split(" / "))
        assert straight > 50
        assert captured == 1
        assert persistent <= 12
    assert text.count("limited by") == 4


def test_rates_that_cannot_be_read_are_refused(tmp_path, capsys):
    for name, text in (("none.json", None), ("empty.json", ""), ("list.json", "[1]"), ("other.json", "{}")):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        with pytest.raises(SystemExit):
            main(["--batch", "1", "--rates", str(path)])
        assert (
            "--rates: expected a file that `python -m benchmarks.gpu --json` wrote" in capsys.readouterr().err
        )
