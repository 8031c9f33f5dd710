"""The package's descriptions say one thing: pyproject.toml, the conda recipe and the citation."""

import re
import tomllib
from pathlib import Path

import pytest

import foldbatch

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"safetensors": "python-safetensors"}


def requirement(text: str) -> tuple[str, str]:
    """Return the name of a dependency and its range, as ``("numpy", ">=2.1,<3")``."""
    name, range_ = re.fullmatch(r"([\w-]+) ?(.*)", text).groups()
    return CONDA_NAMES.get(name, name), range_


def test_the_conda_recipe_wants_what_the_package_wants():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    wanted = {*map(requirement, PROJECT["dependencies"]), ("python", PROJECT["requires-python"])}
    assert set(map(requirement, recipe["requirements"]["run"])) == wanted
    assert recipe["context"]["version"] == PROJECT["version"]
    entry = f"foldbatch = {PROJECT['scripts']['foldbatch']}"
    assert recipe["build"]["python"]["entry_points"] == [entry]
    assert recipe["about"]["summary"] == PROJECT["description"]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] == foldbatch.__version__
    assert citation["license"] == PROJECT["license"]
    assert {author["name"] for author in citation["authors"]} == {a["name"] for a in PROJECT["authors"]}


def test_the_forms_for_issues_are_well_formed():
    paths = [*(ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")]
    assert len(paths) == 2
    for path in paths:
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= form.keys()
        assert all(field["attributes"]["label"] for field in form["body"])
