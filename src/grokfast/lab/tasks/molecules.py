"""QM9's molecules as graphs, item by item those of PyTorch Geometric's data set.

Atoms carry 11 features: one-hot H C N O F, atomic number, four that describe aromaticity and hybridisation, and the
number of bonded hydrogens. The four are always 0, because PyTorch Geometric reads molecules unsanitised. Every bond is
two edges with a one-hot type; edges are sorted by source, then by target. Coordinates are not used.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grokfast.lab.data import DataError, data_directory, locate, read_text

Array = NDArray[Any]

ELEMENTS = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
BOND_ORDERS = (1.0, 2.0, 3.0, 1.5)  # single, double, triple, aromatic
BOND_TYPES, ATOM_FEATURES = len(BOND_ORDERS), len(ELEMENTS) + 6
INSTALL = 'pip install "grokfast[qm9]"'
FOLDERS = ("qm9", ".")
SDF = ("gdb9.sdf", "gdb9.sdf.gz", "gdb9*.sdf", "gdb9*.sdf.gz")
CSV = ("gdb9.sdf.csv", "gdb9.sdf.csv.gz", "gdb9*.csv", "gdb9*.csv.gz")
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
TARGETS = tuple(PACKAGE_COLUMNS)


class Molecule(NamedTuple):
    """One molecule and the number to predict."""

    number: int  # in QM9: N of gdb_N
    elements: Array  # (atoms,): atomic numbers
    orders: Array  # (atoms, atoms): bond orders, 0 where there is no bond
    target: float


class Graphs(NamedTuple):
    """Molecules one after the other; atoms are counted through all of them."""

    atoms: Tensor  # (atoms, 11): features
    edges: Tensor  # (2, edges): source and target
    bonds: Tensor  # (edges,): type
    atom_ends: Tensor  # (molecules + 1,): molecule i has the atoms atom_ends[i] to atom_ends[i + 1]
    edge_ends: Tensor  # (molecules + 1,)
    targets: Tensor  # (molecules,)
    numbers: Tensor  # (molecules,): in QM9, N of gdb_N

    def to(self, device: torch.device) -> Graphs:
        return Graphs(*(part.to(device) for part in self))


def read_molecules(data_dir: str | Path | None, *, count: int, target: str) -> Graphs:
    """The first molecules of QM9, from the files of the data directory or else from the package qm9pack.

    Ten thousand take about a second, so nothing is cached.

    Args:
        data_dir: as the user gave it.
        count: how many; the rest is not parsed.
        target: name of the column to predict.
    """
    chem, base = import_rdkit()
    root, _ = data_directory(data_dir)
    package = importlib.util.find_spec("qm9pack")  # Not imported: it would drag in setuptools.
    with base.BlockLogs():  # A molecule that cannot be read is named in our error.
        if any(
            path
            for folder in FOLDERS
            for pattern in SDF + CSV
            for path in (root / folder).glob(pattern)
            if path.is_file()
        ):
            where, molecules = open_files(chem, data_dir, target)
        elif package is not None and package.submodule_search_locations:
            where = Path(package.submodule_search_locations[0]) / "data"
            molecules = read_package(chem, where, target)
        else:
            raise DataError(f"missing data: put gdb9.sdf and gdb9.sdf.csv into {root / FOLDERS[0]}, or {INSTALL}")
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


def collate(molecules: list[Molecule]) -> Graphs:
    graphs = [make_graph(molecule.elements, molecule.orders) for molecule in molecules]
    atoms, edges, bonds = zip(*graphs, strict=True)
    atom_ends = np.cumsum([0, *map(len, atoms)])
    edge_ends = np.cumsum([0, *map(len, bonds)])
    shifted = [pair + first for pair, first in zip(edges, atom_ends[:-1], strict=True)]
    return Graphs(
        torch.from_numpy(np.concatenate(atoms)),
        torch.from_numpy(np.concatenate(shifted, axis=1)),
        torch.from_numpy(np.concatenate(bonds)),
        torch.from_numpy(atom_ends),
        torch.from_numpy(edge_ends),
        torch.tensor([molecule.target for molecule in molecules]),
        torch.tensor([molecule.number for molecule in molecules]),
    )


def make_graph(elements: Array, orders: Array) -> tuple[Array, Array, Array]:
    """Features of the atoms (atoms, 11), edges (2, edges) and their types (edges,)."""
    edges = np.stack(orders.nonzero())
    bonds = (orders[tuple(edges)][:, None] == np.array(BOND_ORDERS)).argmax(1)
    atoms = np.zeros((len(elements), ATOM_FEATURES), np.float32)
    atoms[:, : len(ELEMENTS)] = elements[:, None] == np.array(list(ELEMENTS.values()))
    atoms[:, len(ELEMENTS)] = elements
    atoms[:, -1] = (orders[:, elements == 1] > 0).sum(1)
    return atoms, edges, bonds


# gdb9.sdf and gdb9.sdf.csv ------------------------------------------------------------------------------------------


def open_files(chem: Any, data_dir: str | Path | None, target: str) -> tuple[Path, Iterator[Molecule]]:
    """The file of structures, and what it holds."""
    sdf = locate(data_dir, FOLDERS, SDF, wanted="gdb9.sdf", hint=INSTALL)
    table = locate(data_dir, FOLDERS, CSV, wanted="gdb9.sdf.csv", hint=INSTALL)
    skip = read_uncharacterized(sdf.parent / "uncharacterized.txt")
    return sdf, read_files(chem, sdf, table, skip, target)


def read_files(chem: Any, sdf: Path, table: Path, skip: frozenset[int], target: str) -> Iterator[Molecule]:
    """Structures with their rows of the table: those of the same name, or where names are missing, by order."""
    content, rows = read_structures(sdf), read_rows(table, target)
    by_name = {row["mol_id"]: row for row in rows if row.get("mol_id")} if content.split("\n", 1)[0].strip() else {}
    if by_name and len(by_name) < len(rows):
        raise DataError(f"{table} must name each molecule once, got {len(by_name):,} names in {len(rows):,} rows")
    structures = content.count("\n$$$$")
    if not by_name and structures != len(rows):
        got = f"{len(rows):,} rows for {structures:,} molecules"
        raise DataError(f"{table} must hold a row for each molecule of {sdf.name}, got {got}")
    for place, record in enumerate(split_records(content)):
        title = record.split("\n", 1)[0].strip()
        row = by_name.get(title) if by_name else rows[place]
        if row is None:
            raise DataError(f"{table} must hold a row for each molecule of {sdf.name}, got none for {title!r}")
        number = qm9_number(row.get("mol_id") or title, place)
        if number not in skip:
            elements, orders = read_record(chem, record, f"{sdf}, record {place + 1}")
            yield Molecule(number, elements, orders, to_number(row[target], f"{table}, {target} in row {title}"))


def read_structures(path: Path) -> str:
    content = read_text(path).replace("\r\n", "\n")
    if not content[-100:].rstrip().endswith("$$$$"):
        raise DataError(f"{path} must end with $$$$, got a file cut in record {content.count('$$$$') + 1:,}")
    return content


def qm9_number(name: str, place: int) -> int:
    found = re.fullmatch(r"gdb_(\d+)", name)
    return int(found[1]) if found else place + 1


def split_records(content: str) -> Iterator[str]:
    """The records of an sdf file, each of which ends with a line of $$$$."""
    start = 0
    while (end := content.find("\n$$$$", start)) >= 0:
        yield content[start : end + 1]
        start = end + len("\n$$$$\n")


def read_record(chem: Any, record: str, where: str) -> tuple[Array, Array]:
    """Atomic numbers and bond orders of one structure."""
    molecule = chem.MolFromMolBlock(record, sanitize=False, removeHs=False)
    if molecule is None or molecule.GetNumAtoms() == 0:
        raise DataError(f"{where} must be a molecule in the V2000 format, got one that cannot be read")
    elements = np.array([atom.GetAtomicNum() for atom in molecule.GetAtoms()])
    orders = chem.GetAdjacencyMatrix(molecule, useBO=True)
    return check_atoms(elements, where), check_bonds(orders, molecule.GetNumBonds(), where)


def check_atoms(elements: Array, where: str) -> Array:
    strange = set(elements.tolist()) - set(ELEMENTS.values())
    if strange:
        raise DataError(f"{where} must hold atoms of {', '.join(ELEMENTS)}, got the atomic number {min(strange)}")
    return elements


def check_bonds(orders: Array, bonds: int, where: str) -> Array:
    found = orders[orders > 0].tolist()  # less than all where a bond is of no known order
    if len(found) != 2 * bonds or not set(found) <= set(BOND_ORDERS):
        raise DataError(f"{where} must hold single, double, triple or aromatic bonds, got another")
    return orders


def read_rows(path: Path, target: str) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
    except csv.Error as error:
        raise DataError(f"{path} must be a table with commas: {error}") from error
    if not rows or target not in rows[0]:
        got = ", ".join(rows[0]) if rows else "no rows"
        raise DataError(f"{path} must have a column {target}, got {got}")
    return rows


def to_number(text: str | None, where: str) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f"{where} must be a number, got {text!r}")
    return number


def read_uncharacterized(path: Path) -> frozenset[int]:
    """The molecules that failed QM9's check of consistency; nine lines of heading, one each, one line of total."""
    if not path.exists():
        return frozenset()
    lines = read_text(path).rstrip().split("\n")[9:-1]
    try:
        return frozenset(int(line.split()[0]) for line in lines)
    except (ValueError, IndexError) as error:
        raise DataError(f"{path} must begin each line with an index after nine lines of heading: {error}") from error


# The package qm9pack ------------------------------------------------------------------------------------------------


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
    elements = check_atoms(np.array([atom.GetAtomicNum() for atom in molecule.GetAtoms()]), where)
    return elements, check_bonds(chem.GetAdjacencyMatrix(molecule, useBO=True), molecule.GetNumBonds(), where)


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
