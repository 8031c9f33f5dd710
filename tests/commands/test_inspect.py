"""The command that shows a model: before it is trained, and afterwards."""

from foldbatch.cli import main


def test_a_model_is_shown_with_its_options_parameters_and_schedule(run, capsys):
    assert main(["inspect", str(run), str(run / "configuration.toml"), "--batch-size", "2"]) == 0
    out = capsys.readouterr().out
    for part in ('name = "tree_lstm"', "words.weight: float32[6,2]", "2 examples: ", "memory: "):
        assert part in out


def test_a_configuration_is_shown_as_what_it_would_train(run, capsys):
    assert main(["inspect", str(run / "configuration.toml")]) == 0
    assert "1 example: " in capsys.readouterr().out


def test_a_model_is_shown_without_what_its_file_names(run, capsys, tmp_path):
    assert main(["inspect", str(run)]) == 0
    assert "no examples to run: DATA: expected a file of examples" in capsys.readouterr().out
    for wrong in (["--timeline", str(tmp_path / "none.svg")], [str(tmp_path / "none.txt")]):
        assert main(["inspect", str(run), *wrong]) == 2
        assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "none.svg").exists()
