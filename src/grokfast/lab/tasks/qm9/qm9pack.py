"""QM9's molecules from the package qm9pack, which has them as SMILES, numbered as in gdb9.sdf."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grokfast.lab.tasks.data import DataError
from grokfast.lab.tasks.qm9.gdb9 import ELEMENTS, Array, Molecule, atoms_and_bonds, check_atoms, to_number

PACKAGE_COLUMNS = {  # our name: that of the package qm9pack
    "A": "RotA_GHz",
    "B": "RotB_GHz",
    "C": "RotC_GHz",
    "mu": "Dipole_debye",
    "alpha": "Polarizability_bohr3",
    "homo": "HOMO_au",
    "lumo": "LUMO_au",
    "gap": "HOMO_LUMO_gap_au",
    "r2": "R2_bohr2",
    "zpve": "ZPVE_au",
    "u0": "InternalEnergy_0K_au",
    "u298": "InternalEnergy_298K_au",
    "h298": "Enthalphy_298K_au",
    "g298": "GibbsFreeEnergy_298K_au",
    "cv": "Heatcapacity_Cv_cal_mol_K",
}


def read_package(chem: Any, folder: Path, target: str) -> Iterator[Molecule]:
    for path in sorted(folder.glob("qm9_part*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            for place, row in enumerate(csv.DictReader(file)):
                where = f"{path}, row {place + 1}"
                try:
                    yield read_package_row(chem, row, target, where)
                except KeyError as error:
                    raise DataError(f"{path} must have a column {error.args[0]}, got {', '.join(row)}") from error


def read_package_row(chem: Any, row: Mapping[str, str], target: str, where: str) -> Molecule:
    answer = to_number(row[PACKAGE_COLUMNS[target]], f"{where}, {target}")
    wanted, places = read_coordinates(row, where)
    elements, orders = read_smiles(chem, row["SMILES"], where)
    graph = hang_hydrogens(elements, orders, wanted, places) or renumber(chem, elements, orders, wanted, places)
    return Molecule(int(to_number(row["Index"], where)), *graph, answer)


def read_smiles(chem: Any, smiles: str, where: str) -> tuple[Array, Array]:
    """Atomic numbers and bond orders, the hydrogens last."""
    molecule = chem.MolFromSmiles(smiles)
    if molecule is None:
        raise DataError(f"{where} must have a SMILES, got {smiles!r}")
    molecule = chem.AddHs(molecule)
    chem.Kekulize(molecule, clearAromaticFlags=True)  # gdb9.sdf has no aromatic bonds
    return atoms_and_bonds(chem, molecule, where)


def read_coordinates(row: Mapping[str, str], where: str) -> tuple[Array, Array]:
    """Atomic numbers (atoms,) and coordinates (atoms, 3)."""
    elements = np.array([ELEMENTS.get(name, 0) for name in re.findall(r"[A-Z][a-z]?", row["Elements"])])
    try:
        places = np.array(re.sub(r"[\[\]]", "", row["XYZ_Ang"]).split(","), dtype=float).reshape(len(elements), 3)
    except ValueError as error:
        raise DataError(f"{where} must have three coordinates for each element: {error}") from error
    return check_atoms(elements, where), places


def measure_distances(places: Array) -> Array:
    return np.linalg.norm(places[:, None] - places[None], axis=-1)  # (atoms, atoms)


def hang_hydrogens(elements: Array, orders: Array, wanted: Array, places: Array) -> tuple[Array, Array] | None:
    """The same molecule, numbered like the coordinates: heavy atoms keep their order, hydrogens hang on the nearest.

    None where that is another molecule, because the heavy atoms of SMILES and coordinates are ordered differently.
    """
    heavy, core, shell = np.flatnonzero(elements != 1), np.flatnonzero(wanted != 1), np.flatnonzero(wanted == 1)
    nearest = core[measure_distances(places)[np.ix_(shell, core)].argmin(1)]  # (hydrogens,)
    hydrogens = orders[np.ix_(heavy, np.flatnonzero(elements == 1))].sum(1)  # (heavy,)
    counted = np.bincount(nearest, minlength=len(wanted))[core]
    if not np.array_equal(elements[heavy], wanted[core]) or not np.array_equal(counted, hydrogens):
        return None
    whole = np.zeros((len(wanted), len(wanted)))
    whole[np.ix_(core, core)] = orders[np.ix_(heavy, heavy)]
    whole[shell, nearest] = whole[nearest, shell] = 1.0
    return wanted, whole


def renumber(chem: Any, elements: Array, orders: Array, wanted: Array, places: Array) -> tuple[Array, Array]:
    """The same molecule, numbered like the coordinates by its bonds: about 1 in 3,000 needs it."""
    radii = np.array([chem.GetPeriodicTable().GetRcovalent(int(element)) for element in wanted])
    touching = measure_distances(places) < 1.3 * (radii[:, None] + radii[None])
    match = draw_skeleton(chem, wanted, touching).GetSubstructMatch(draw_skeleton(chem, elements, orders > 0))
    if len(match) != len(wanted):
        return elements, orders  # to the model, any numbering is the same but for rounding
    renumbered = np.zeros_like(orders)
    renumbered[np.ix_(match, match)] = orders
    return wanted, renumbered


def draw_skeleton(chem: Any, elements: Array, bonded: Array) -> Any:
    """A molecule with single bonds only."""
    skeleton = chem.RWMol()
    for element in elements:
        skeleton.AddAtom(chem.Atom(int(element)))
    for i, j in zip(*np.triu(bonded, 1).nonzero(), strict=True):
        skeleton.AddBond(int(i), int(j), chem.BondType.SINGLE)
    return skeleton
