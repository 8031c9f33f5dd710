"""RDKit: atoms exchange messages along bonds."""

from typing import Any

from graphs import over_graphs
from rdkit import Chem

EXAMPLES = [Chem.MolFromSmiles(text) for text in ("CCO", "c1ccccc1", "CC(=O)N")]


def kinds(molecule: Any) -> list[int]:
    """Return the atomic number of each atom."""
    return [atom.GetAtomicNum() for atom in molecule.GetAtoms()]


def neighbours(molecule: Any) -> list[list[int]]:
    """Return the atoms that each one is bound to."""
    return [[other.GetIdx() for other in atom.GetNeighbors()] for atom in molecule.GetAtoms()]


doors = over_graphs(kinds, neighbours, 119)
