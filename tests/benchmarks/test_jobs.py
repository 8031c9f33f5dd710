"""The jobs: their data are what they say, groups stay together, and a small run prints a row for each model."""

import random
from pathlib import Path

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.jobs import contest, expressions, peers, site_features, syntax
from benchmarks.jobs.expression_model import walk_of
from benchmarks.jobs.job import Example, Job, parted
from benchmarks.jobs.peers import Fitted
from benchmarks.jobs.sites import LARGEST, Site, javascript_statements, python_statements, sites, swapped

SOURCE = """
def scale(start, stop, values):
    if len(values) > stop - start and isinstance(values, list):
        return ("%d" % start), values[0] % stop, scale(*values, stop)
    return max(start, start)
"""


def sites_of(source: str) -> list[Site]:
    return [site for statement in python_statements(source) for site in sites(statement)]


def words(site: Site) -> tuple[str, str]:
    first, second = (
        " ".join(word for part in site_features.inside(operand) for word in site_features.words_of(part))
        for operand in (site.first, site.second)
    )
    return first, second


def test_sites_of_python_are_operands_whose_order_counts_and_differ():
    """Not a text that is filled in, not what is unpacked, not equal operands; each statement by itself."""
    found = {(site.kind, *words(site)) for site in sites_of(SOURCE)}
    assert found == {
        ("Compare:Gt", "len values", "stop start"),
        ("BinOp:Sub", "stop", "start"),
        ("Call", "values", "list"),
        ("BinOp:Mod", "values 0", "stop"),
    }


def test_sites_of_javascript_are_the_same_kinds():
    pytest.importorskip("tree_sitter_javascript", reason="needs a grammar: pip install -e '.[jobs]'")
    text = "function f(a, b) { if (a.size < limit) { return max(a, b) } return a - b + g(...a, b) + h(a, a) }"
    found = {(site.kind, *words(site)) for each in javascript_statements(text) for site in sites(each)}
    assert found == {
        ("binary_expression:<", "a size", "limit"),
        ("arguments", "a", "b"),
        ("binary_expression:-", "a", "b"),
    }


def test_a_site_holds_its_statement_and_a_swap_changes_the_operands_alone():
    (site,) = (site for site in sites_of(SOURCE) if site.kind == "Call")
    assert site_features.tokens(site) == (
        "If test0;BoolOp:And values1;Compare:Gt;Call;Name;len;Name;values;BinOp:Sub;Name;stop;Name;start;Call;Name"
        ";isinstance;<first>;Name;values;<second>;Name;list;<end>"
    ).split(";")
    turned = swapped(site)
    assert turned != site
    assert swapped(turned) == site
    assert (turned.steps, words(turned)) == (site.steps, ("list", "values"))
    assert site_features.features(turned).keys() != site_features.features(site).keys()


def test_statements_that_are_too_large_have_no_sites():
    assert sites_of(f"f(a, b){' + 1' * LARGEST}") == []


def library(folder: Path) -> None:
    """Write some files of a library in which the first operand is always of a kind."""
    rng = random.Random(0)
    for k in range(40):
        lines = [
            f"x{i} = check(item{rng.randrange(9)}.part{rng.randrange(9)}, kind{rng.randrange(9)})"
            for i in range(6)
        ]
        (folder / f"module{k}.py").write_text("\n".join([*lines, "y = item1 - kind2"]), encoding="utf-8")
    (folder / "broken.py").write_text("def (", encoding="utf-8")
    (folder / "tests").mkdir()
    (folder / "tests" / "skipped.py").write_text("f(never, seen)", encoding="utf-8")


def test_a_job_has_each_site_once_half_of_them_swapped_and_no_file_in_two_parts(tmp_path):
    library(tmp_path)
    job = syntax.job("python", tmp_path)
    examples = [*job.train, *job.dev, *job.test]
    assert 0.3 < np.mean([example.label for example in examples]) < 0.7
    originals = [swapped(example.data) if example.label else example.data for example in examples]
    assert len(set(originals)) == len(examples)
    assert not any("never" in words(site) for site in originals)
    groups = [{example.group for example in part} for part in (job.train, job.dev, job.test)]
    assert all(groups)
    assert not groups[0] & groups[1] | groups[0] & groups[2] | groups[1] & groups[2]
    turned = job.with_mirrors()[len(job.train)]
    assert (turned.data, turned.label) == (swapped(job.train[0].data), 1 - job.train[0].label)


def test_the_model_of_a_site_says_the_contrary_of_swapped_operands(tmp_path):
    library(tmp_path)
    job = syntax.job("python", tmp_path).cut(20)
    program = fb.compile(job.walk(job.train), "numpy")
    program.warm([(example.data, example.label) for example in job.train])
    one = np.array(list(program.run([(example.data, None) for example in job.train])))
    two = np.array(list(program.run([(swapped(example.data), None) for example in job.train])))
    assert np.abs(one[:, 1]).max() > 0.01
    np.testing.assert_allclose(one[:, 1], -two[:, 1], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # of scikit-learn's own: few rounds do not converge
def test_a_small_run_of_syntax_prints_a_row_for_each_model_and_margins(tmp_path, capsys, monkeypatch):
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install -e '.[jobs]'")
    library(tmp_path)
    monkeypatch.setattr(peers, "TREES", 3)
    options = f"--folder {tmp_path} --seeds 2 --epochs 1 --limit 40 --backend numpy".split()
    assert syntax.main(options) == 0
    printed = capsys.readouterr().out
    assert [line.split(" | ")[0] for line in printed.splitlines() if line.startswith("|")][2:] == [
        "| foldbatch",
        "| logistic regression",
        "| logistic regression, no pairs",
        "| gradient boosting",
    ]
    assert "against gradient boosting: " in printed


def test_a_folder_without_sources_is_refused(tmp_path, capsys):
    assert syntax.main(["--folder", str(tmp_path)]) == 2
    assert "expected files *.py with operands, found none" in capsys.readouterr().err


def test_polynomials_are_labelled_by_the_way_with_the_fewest_operations():
    pytest.importorskip("sympy", reason="needs SymPy: pip install -e '.[jobs]'")
    import sympy  # noqa: PLC0415

    from benchmarks.jobs.polynomials import WAYS, operations, polynomials  # noqa: PLC0415

    texts = ["(x + 1)*(y + 2)", "x**2 - 2*x*y + y**2", "x**3 + 2*x**2 + 4*x + 1", "x + y"]
    found = [operations(sympy.sympify(text)) for text in texts]
    assert [WAYS[counts.index(min(counts))] for counts in found] == ["keep", "factor", "horner", "keep"]
    drawn = polynomials(4, seed=3)
    assert drawn == polynomials(4, seed=3)
    assert len({expression for expression, _ in drawn}) == 4
    assert all(operations(expression)[way] == min(operations(expression)) for expression, way in drawn)


def test_tokens_and_features_of_an_expression_say_what_stands_where():
    tree = fb.trees.Tree(
        [2, 2, 4, 4, -1], ["Symbol", "Integer", "Pow", "Symbol", "Add"], ["x", "2", None, "y", None]
    )
    assert expressions.tokens(tree) == ["Add 2", "Pow 2", "x", "2", "y"]
    found = expressions.features(tree)
    assert (found["size"], found["depth"], found["Add 2 > Pow 2 > x"], found["y at 1"], found["x 2 y"]) == (
        5,
        2,
        1,
        1,
        1,
    )


def formulas() -> Job:
    """A job that counting cannot do: is the number below the sign larger than 5?"""
    rng, examples = random.Random(0), []
    for k in range(120):
        a, b = rng.sample("123456789", 2)
        tree = fb.trees.Tree([1, 3, 3, -1], ["n", "Neg", "n", "Add"], [a, None, b, None])
        examples.append(Example(tree, int(a > "5"), str(k)))
    parts = parted(examples)
    features = expressions.features
    return Job(
        "large",
        ("no", "yes"),
        parts["train"],
        parts["dev"],
        parts["test"],
        lambda part: walk_of(part, 2, 8),
        features,
        expressions.tokens,
    )


def test_ours_learns_and_a_seeds_figures_do_not_depend_on_those_before_it():
    job = formulas()
    (one, two) = contest.ours(job, [0, 1], 8, 0.03, "numpy")
    assert one.test.shape == two.test.shape == (len(job.test),)
    (again,) = contest.ours(job, [1], 8, 0.03, "numpy")
    assert (again.test == two.test).all()
    assert (one.test != two.test).any() or one.dev != two.dev
    assert max(one.dev, two.dev) > 0.7


def test_the_recurrent_network_learns():
    job = formulas()
    pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[jobs]'")
    from benchmarks.jobs.recurrent import recurrent  # noqa: PLC0415

    (found,) = recurrent(job, [0], 8)
    assert found.test.shape == (len(job.test),)
    assert found.dev > 0.5


def test_the_report_has_means_with_their_errors_and_says_what_is_not_certain():
    test = [Example(None, 0, str(k)) for k in range(100)]
    job = Job("a job", ("a", "b"), test[:3], test[:2], test, *[lambda *_: None] * 3)
    wrong = np.ones(100, np.int64)
    half, most = wrong.copy(), wrong.copy()
    half[:50], most[:90] = 0, 0
    entries = [
        contest.Entry("ours", [Fitted(0.9, most, ""), Fitted(0.7, most * 0, "")], 2.0),
        contest.Entry("far", [Fitted(0.5, half, "")], 1.0),
        contest.Entry("near", [Fitted(0.9, most, "")], 1.0),
    ]
    lines = contest.report(job, entries)
    assert "| ours | 80.0% | 95.0% ± 5.0% | 2 |" in lines
    assert "| far | 50.0% | 50.0% | 1 |" in lines
    assert "ours against far: +45.0 ± 6.9 points, more than twice its standard error" in lines
    assert "ours against near: +5.0 ± 5.2 points, not certain" in lines


def test_a_vote_of_three_seeds_is_a_row_of_its_own():
    test = [Example(None, 0, str(k)) for k in range(9)]
    job = Job("a job", ("a", "b"), test, test, test, *[lambda *_: None] * 3)
    seeds = [Fitted(0.5, np.array([int(k % 3 == seed) for k in range(9)]), "") for seed in range(3)]
    lines = contest.report(job, [contest.Entry("ours", seeds, 1.0), contest.Entry("peer", seeds[:1], 1.0)])
    assert "| ours, vote of 3 seeds |  | 100.0% | 3 |" in lines
    assert [line.split(":")[0] for line in lines[-2:]] == [
        "ours against peer",
        "ours, vote of 3 seeds against peer",
    ]
