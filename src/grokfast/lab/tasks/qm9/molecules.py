"""QM9's molecules as graphs, item by item those of PyTorch Geometric's data set.

Atoms carry 11 features: one-hot H C N O F, atomic number, four that describe aromaticity and hybridisation, and the
number of bonded hydrogens. The four are always 0, because PyTorch Geometric reads molecules unsanitised. Every bond is
two edges with a one-hot type; edges are sorted by source, then by target. Coordinates are not used.
"""

from __future__ import annotations

import importlib.util
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from grokfast.lab.tasks.data import DataDir, DataError, data_directory, list_files
from grokfast.lab.tasks.qm9.gdb9 import BOND_ORDERS, CSV, ELEMENTS, FOLDERS, INSTALL, SDF, Array, Molecule, open_files
from grokfast.lab.tasks.qm9.qm9pack import read_package

BOND_TYPES, ATOM_FEATURES = len(BOND_ORDERS), len(ELEMENTS) + 6


class _Graphs(NamedTuple):
    """Molecules one after the other; atoms are counted through all of them."""

    atoms: Tensor  # (atoms, 11): features
    edges: Tensor  # (2, edges): source and target
    bonds: Tensor  # (edges,): type
    atom_ends: Tensor  # (molecules + 1,): molecule i has the atoms atom_ends[i] to atom_ends[i + 1]
    edge_ends: Tensor  # (molecules + 1,)
    targets: Tensor  # (molecules,)
    numbers: Tensor  # (molecules,): in QM9, N of gdb_N

    def to(self, device: torch.device) -> _Graphs:
        return _Graphs(*(part.to(device) for part in self))


def read_molecules(data_dir: DataDir, *, count: int, target: str) -> _Graphs:
    """The first molecules of QM9, from the files of the data directory or else from the package qm9pack.

    If the user named a directory, it must have the files: the package may have other data.
    The rest of the file is not parsed. Ten thousand take about a second, so nothing is cached.
    """
    chem, base = import_rdkit()
    root, _ = data_directory(data_dir)
    package = importlib.util.find_spec("qm9pack")  # Not imported: it would drag in setuptools.
    with base.BlockLogs():  # A molecule that cannot be read is named in our error.
        if any(list_files(root / folder, pattern) for folder in FOLDERS for pattern in SDF + CSV):
            where, molecules = open_files(chem, data_dir, target)
        elif data_dir is None and package is not None and package.submodule_search_locations:
            where = Path(package.submodule_search_locations[0]) / "data"
            molecules = read_package(chem, where, target)
        else:
            otherwise = INSTALL if data_dir is None else "give no --data-dir to use the package qm9pack"
            raise DataError(f"missing data: put gdb9.sdf and gdb9.sdf.csv into {root / FOLDERS[0]}, or {otherwise}")
        taken = list(islice(molecules, count))
    if len(taken) < count:
        raise DataError(f"{where} must hold {count:,} molecules, got {len(taken):,}")
    return collate(taken)


def import_rdkit() -> tuple[Any, Any]:
    try:
        from rdkit import Chem, rdBase
    except ImportError as error:
        raise DataError(f"the qm9 task needs rdkit: {INSTALL}") from error
    return Chem, rdBase


def collate(molecules: list[Molecule]) -> _Graphs:
    graphs = [make_graph(molecule.elements, molecule.orders) for molecule in molecules]
    atoms, edges, bonds = zip(*graphs, strict=True)
    atom_ends = np.cumsum([0, *map(len, atoms)])
    edge_ends = np.cumsum([0, *map(len, bonds)])
    shifted = [pair + first for pair, first in zip(edges, atom_ends[:-1], strict=True)]
    joined = np.concatenate(atoms), np.concatenate(shifted, axis=1), np.concatenate(bonds), atom_ends, edge_ends
    known = [molecule.target for molecule in molecules], [molecule.number for molecule in molecules]
    return _Graphs(*[*map(torch.from_numpy, joined), *map(torch.tensor, known)])


def make_graph(elements: Array, orders: Array) -> tuple[Array, Array, Array]:
    """Features of the atoms (atoms, 11), edges (2, edges) and their types (edges,)."""
    edges = np.stack(orders.nonzero())
    bonds = (orders[tuple(edges)][:, None] == np.array(BOND_ORDERS)).argmax(1)
    atoms = np.zeros((len(elements), ATOM_FEATURES), np.float32)
    atoms[:, : len(ELEMENTS)] = elements[:, None] == np.array(list(ELEMENTS.values()))
    atoms[:, len(ELEMENTS)] = elements
    atoms[:, -1] = (orders[:, elements == 1] > 0).sum(1)
    return atoms, edges, bonds
