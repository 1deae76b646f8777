"""QM9's molecules from the files gdb9.sdf and gdb9.sdf.csv, and what holds for them wherever they come from."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from grokfast.lab.tasks.data import DataDir, DataError, locate, read_text

Array = NDArray[Any]

ELEMENTS = {"H": 1, "C": 6, "N": 7, "O": 8, "F": 9}
BOND_ORDERS = (1.0, 2.0, 3.0, 1.5)  # single, double, triple, aromatic
INSTALL = 'pip install "grokfast[qm9]"'
FOLDERS = ("qm9", ".")
SDF = ("gdb9.sdf", "gdb9.sdf.gz", "gdb9*.sdf", "gdb9*.sdf.gz")
CSV = ("gdb9.sdf.csv", "gdb9.sdf.csv.gz", "gdb9*.csv", "gdb9*.csv.gz")
Target = Literal["A", "B", "C", "mu", "alpha", "homo", "lumo", "gap", "r2", "zpve", "u0", "u298", "h298", "g298", "cv"]
TARGETS: tuple[str, ...] = get_args(Target)


class Molecule(NamedTuple):
    """One molecule and the number to predict."""

    number: int  # in QM9: N of gdb_N
    elements: Array  # (atoms,): atomic numbers
    orders: Array  # (atoms, atoms): bond orders, 0 where there is no bond
    target: float


def open_files(chem: Any, data_dir: DataDir, target: str) -> tuple[Path, Iterator[Molecule]]:
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
        known = re.fullmatch(r"gdb_(\d+)", row.get("mol_id") or title)
        number = int(known[1]) if known else place + 1
        if number not in skip:
            elements, orders = read_record(chem, record, f"{sdf}, record {place + 1}")
            yield Molecule(number, elements, orders, to_number(row[target], f"{table}, {target} in row {title}"))


def read_structures(path: Path) -> str:
    content = read_text(path).replace("\r\n", "\n")
    if not content[-100:].rstrip().endswith("$$$$"):
        raise DataError(f"{path} must end with $$$$, got a file cut in record {content.count('$$$$') + 1:,}")
    return content


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
    return atoms_and_bonds(chem, molecule, where)


def read_rows(path: Path, target: str) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
    except csv.Error as error:
        raise DataError(f"{path} must be a table with commas: {error}") from error
    if not rows or target not in rows[0]:
        got = ", ".join(rows[0]) if rows else "no rows"
        raise DataError(f"{path} must have a column {target}, got {got}")
    return rows


def read_uncharacterized(path: Path) -> frozenset[int]:
    """The molecules that failed QM9's check of consistency; nine lines of heading, one each, one line of total."""
    if not path.exists():
        return frozenset()
    lines = read_text(path).rstrip().split("\n")[9:-1]
    try:
        return frozenset(int(line.split()[0]) for line in lines)
    except (ValueError, IndexError) as error:
        raise DataError(f"{path} must begin each line with an index after nine lines of heading: {error}") from error


# What every molecule must keep ---------------------------------------------------------------------------------------


def check_atoms(elements: Array, where: str) -> Array:
    strange = set(elements.tolist()) - set(ELEMENTS.values())
    if strange:
        raise DataError(f"{where} must hold atoms of {', '.join(ELEMENTS)}, got the atomic number {min(strange)}")
    return elements


def atoms_and_bonds(chem: Any, molecule: Any, where: str) -> tuple[Array, Array]:
    """Atomic numbers and bond orders, both checked."""
    elements = check_atoms(np.array([atom.GetAtomicNum() for atom in molecule.GetAtoms()]), where)
    orders = chem.GetAdjacencyMatrix(molecule, useBO=True)
    found = orders[orders > 0].tolist()  # less than all where a bond is of no known order
    if len(found) != 2 * molecule.GetNumBonds() or not set(found) <= set(BOND_ORDERS):
        raise DataError(f"{where} must hold single, double, triple or aromatic bonds, got another")
    return elements, orders


def to_number(text: str | None, where: str) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f"{where} must be a number, got {text!r}")
    return number
