"""QM9: PyTorch Geometric's graphs and convolutions, its files read and checked."""

from __future__ import annotations

import copy
import csv
import importlib.util
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from made import SMILES, make_table, write_qm9
from torch import nn
from torch.nn.functional import mse_loss

from grokfast.lab.tasks.data import DataError, locate, read_text
from grokfast.lab.tasks.qm9.gdb9 import CSV, FOLDERS, SDF, TARGETS, read_uncharacterized
from grokfast.lab.tasks.qm9.molecules import _Graphs, read_molecules
from grokfast.lab.tasks.qm9.qm9pack import PACKAGE_COLUMNS
from grokfast.lab.tasks.qm9.task import Qm9Config, Qm9Task

missing = [name for name in ("torch_geometric", "rdkit") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")
real_data = pytest.mark.skipif("GROKFAST_DATA" not in os.environ, reason="needs the real files: set GROKFAST_DATA")
real_package = pytest.mark.skipif(importlib.util.find_spec("qm9pack") is None, reason="needs qm9pack")


def write_uncharacterized(path: Path, numbers: list[int]) -> None:
    path.write_text("heading\n" * 9 + "".join(f"{number:7d}  C  C\n" for number in numbers) + "2 compounds\n")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return write_qm9(tmp_path / "data")


def small(**changes: Any) -> Qm9Config:
    return Qm9Config(**{"molecules": 13, "width": 6, "out_width": 5, "batch_size": 4, **changes})


def read(data_dir: Path | None, count: int = 13, target: str = "alpha") -> _Graphs:
    return read_molecules(data_dir, count=count, target=target)


def same(one: _Graphs, other: _Graphs) -> bool:
    return all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def one_molecule(graphs: _Graphs, i: int) -> dict[str, torch.Tensor]:
    first, last = graphs.atom_ends[i : i + 2].tolist()
    edges = slice(*graphs.edge_ends[i : i + 2].tolist())
    kinds = nn.functional.one_hot(graphs.bonds[edges], 4).float()
    return {"x": graphs.atoms[first:last], "edge_index": graphs.edges[:, edges] - first, "edge_attr": kinds}


def as_pyg(graphs: _Graphs, chosen: list[int]) -> Any:
    """PyTorch Geometric's batch of these molecules."""
    from torch_geometric.data import Batch, Data

    return Batch.from_data_list([Data(**one_molecule(graphs, i), y=graphs.targets[i]) for i in chosen])  # type: ignore


# Graphs -------------------------------------------------------------------------------------------------------------


def assert_pyg_reads_the_same(graphs: _Graphs, root: Path) -> None:
    Qm9Task(small(molecules=2), data_dir=root / "raw")  # imports torch_geometric without its warnings
    from torch_geometric.datasets import QM9

    theirs = QM9(str(root))
    assert len(theirs) >= len(graphs.targets)
    for i in range(len(graphs.targets)):
        mine, item = one_molecule(graphs, i), theirs[i]
        for name in ("x", "edge_index", "edge_attr"):
            assert torch.equal(mine[name], item[name].to(mine[name].dtype))  # type: ignore
        assert float(graphs.targets[i]) == float(item["y"][0, 1])  # alpha, whose unit it keeps
        assert item["name"] == f"gdb_{graphs.numbers[i]}"


def test_graphs_are_those_of_pytorch_geometric_s_own_reader(tmp_path: Path) -> None:
    write_qm9(tmp_path, folder="raw")
    write_uncharacterized(tmp_path / "raw" / "uncharacterized.txt", [2, 5])
    graphs = read(tmp_path / "raw", 12)
    assert graphs.numbers.tolist() == [1, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert_pyg_reads_the_same(graphs, tmp_path)


def test_aromatic_bonds_are_the_fourth_type_and_hydrogens_are_counted(data_dir: Path) -> None:
    path = data_dir / "qm9" / "gdb9.sdf"
    path.write_text(path.read_text().replace("  1  2  1  0", "  1  2  4  0", 1))
    methane = one_molecule(read(data_dir), 0)
    assert methane["x"][0].tolist() == [0, 1, 0, 0, 0, 6, 0, 0, 0, 0, 4]
    assert methane["x"][1].tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    assert methane["edge_attr"].argmax(1).tolist() == [3, 0, 0, 0, 3, 0, 0, 0]


@pytest.mark.parametrize("folder", ["qm9", "."])
@pytest.mark.parametrize("packed", [False, True])
def test_every_place_and_packing_gives_the_same_graphs(
    tmp_path: Path, folder: str, packed: bool, data_dir: Path
) -> None:
    assert same(read(write_qm9(tmp_path / "other", folder=folder, packed=packed)), read(data_dir))


def test_line_ends_of_other_systems_change_nothing(tmp_path: Path, data_dir: Path) -> None:
    expected = read(data_dir)
    for path in (data_dir / "qm9").iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert same(read(data_dir), expected)


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_is_its_column(data_dir: Path, target: str) -> None:
    assert read(data_dir, 3, target).targets.tolist() == [100 * i + TARGETS.index(target) + 0.25 for i in range(3)]


def test_rows_are_found_by_name_whatever_their_order(data_dir: Path) -> None:
    expected = read(data_dir)
    table = data_dir / "qm9" / "gdb9.sdf.csv"
    head, *rows = table.read_text().splitlines()
    table.write_text("\n".join([head, "gdb_99" + rows[0][5:], *rows[::-1]]))
    assert same(read(data_dir), expected)


def test_without_names_rows_are_found_by_order(tmp_path: Path, data_dir: Path) -> None:
    nameless = write_qm9(tmp_path / "nameless", titles=[""] * len(SMILES))
    assert same(read(nameless), read(data_dir))


# The package qm9pack ------------------------------------------------------------------------------------------------


def write_package(root: Path, coordinates: Callable[[Any], Any] = lambda molecule: molecule) -> Path:
    """The made molecules as a package, and as an sdf file, from the same coordinates."""
    from rdkit import Chem
    from rdkit.Chem import AllChem

    structures, rows = "", []
    for i, smiles in enumerate(SMILES):
        molecule = Chem.AddHs(Chem.MolFromSmiles(smiles))
        AllChem.EmbedMolecule(molecule, randomSeed=1)  # type: ignore
        molecule = coordinates(molecule)
        molecule.SetProp("_Name", f"gdb_{i + 1}")
        structures += Chem.MolToMolBlock(molecule) + "$$$$\n"
        elements = [atom.GetSymbol() for atom in molecule.GetAtoms()]
        rows.append([i + 1, smiles, elements, molecule.GetConformer().GetPositions().tolist()])
    (root / "files").mkdir(parents=True)
    (root / "files" / "gdb9.sdf").write_text(structures)
    (root / "files" / "gdb9.sdf.csv").write_text(make_table([f"gdb_{i + 1}" for i in range(len(SMILES))]))
    data = root / "packages" / "qm9pack" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise AssertionError('must not be imported')\n")
    for part, some in ((1, rows[:5]), (2, rows[5:])):
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["Index", "SMILES", "Elements", "XYZ_Ang", *PACKAGE_COLUMNS.values()])
        writer.writerows([*row, *(100 * (row[0] - 1) + j + 0.25 for j in range(len(TARGETS)))] for row in some)
        (data / f"qm9_part{part}.csv").write_text(text.getvalue())
    (root / "empty").mkdir()
    return root


def use_package(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(root / "packages"))
    monkeypatch.setenv("GROKFAST_DATA", str(root / "empty"))
    monkeypatch.delitem(sys.modules, "qm9pack", raising=False)


def reverse_hydrogens(molecule: Any) -> Any:
    from rdkit import Chem

    numbers = [atom.GetAtomicNum() for atom in molecule.GetAtoms()]
    heavy = [i for i, number in enumerate(numbers) if number > 1]
    return Chem.RenumberAtoms(molecule, heavy + [i for i, number in enumerate(numbers) if number == 1][::-1])


def reverse_all(molecule: Any) -> Any:
    from rdkit import Chem

    return Chem.RenumberAtoms(molecule, list(range(molecule.GetNumAtoms()))[::-1])


@pytest.mark.parametrize(
    ("numbering", "count"),
    [
        (lambda molecule: molecule, 14),
        (reverse_hydrogens, 14),
        (reverse_all, 12),
    ],  # bonds do not tell two oxygens apart
)
def test_the_package_gives_the_graphs_of_the_files(
    tmp_path: Path, numbering: Callable[[Any], Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_package(tmp_path, numbering)
    use_package(root, monkeypatch)
    assert same(read(None, count), read(root / "files", count))


def test_a_named_directory_without_the_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_package(tmp_path)
    use_package(root, monkeypatch)
    with pytest.raises(DataError, match=r"missing data: put gdb9.sdf .* or give no --data-dir to use the package"):
        read(root / "empty")


@pytest.mark.parametrize("damage", ["none", "far apart"])
def test_whatever_the_numbering_the_package_gives_molecules_that_the_model_sees_alike(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_package(tmp_path, reverse_all)
    use_package(root, monkeypatch)
    if damage == "far apart":  # no two atoms touch
        monkeypatch.setattr(
            "grokfast.lab.tasks.qm9.qm9pack.measure_distances", lambda places: 9 + abs(places @ places.T)
        )
    mine, theirs = (Qm9Task(small(molecules=14), data_dir=place) for place in (None, root / "files"))
    with torch.no_grad():
        outputs = [task.model(task.gather(torch.arange(14))) for task in (mine, theirs)]
    torch.testing.assert_close(*outputs)


def test_damaged_packages_are_refused_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_package(tmp_path)
    use_package(root, monkeypatch)
    path = root / "packages" / "qm9pack" / "data" / "qm9_part1.csv"
    whole = path.read_text()
    for old, new, message in (
        ("SMILES", "smiles", "must have a column SMILES"),
        ("1,C,", "1,C(,", "row 1 must have a SMILES, got 'C\\('"),
        ("['N'", "['N', 'H'", "row 2 must have three coordinates"),
        ("['N'", "['Xe'", "part1.csv, row 2 must hold atoms of H, C, N, O, F, got the atomic number 0$"),
        ("104.25", "many", "row 2, alpha must be a number, got 'many'"),
    ):
        path.write_text(whole.replace(old, new, 1))
        with pytest.raises(DataError, match=message):
            read(None)


# Damaged files ------------------------------------------------------------------------------------------------------


def cut(path: Path, part: float) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])


def replace(old: str, new: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return damage


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (
            "gdb9.sdf",
            lambda path: cut(path, 0.5),
            r"gdb9.sdf must end with \$\$\$\$, got a file cut in record 9",
        ),
        ("gdb9.sdf", lambda path: path.write_text(""), "gdb9.sdf must end with"),
        ("gdb9.sdf", replace("M  END\n", ""), "gdb9.sdf, record 1 must be a molecule"),
        ("gdb9.sdf", replace(" N  ", " Xx "), "gdb9.sdf, record 2 must be a molecule"),
        ("gdb9.sdf", replace(" N  ", " Xe "), "record 2 must hold atoms of H, C, N, O, F, got the atomic number 54"),
        ("gdb9.sdf", replace("  1  2  1  0", "  1  2  8  0"), "record 1 must hold single, double, triple or aromatic"),
        ("gdb9.sdf", replace("gdb_3\n", "gdb_77\n"), "gdb9.sdf.csv must hold a row for each .*, got none for 'gdb_77'"),
        ("gdb9.sdf.csv", replace("alpha", "beta"), "gdb9.sdf.csv must have a column alpha, got mol_id, A, B"),
        ("gdb9.sdf.csv", replace("204.25", "many"), "gdb9.sdf.csv, alpha in row gdb_3 must be a number, got 'many'"),
        ("gdb9.sdf.csv", replace("204.25", "nan"), "must be a number, got 'nan'"),
        ("gdb9.sdf.csv", lambda path: cut(path, 0.5), "gdb9.sdf.csv"),
        ("gdb9.sdf.csv", lambda path: path.write_text(""), "must have a column alpha, got no rows"),
        ("gdb9.sdf.csv", replace("gdb_3,", "gdb_2,"), "must name each molecule once, got 13 names in 14 rows"),
        ("gdb9.sdf.csv", lambda path: path.unlink(), "missing data: put gdb9.sdf.csv into"),
        ("gdb9.sdf", lambda path: path.unlink(), "missing data: put gdb9.sdf into"),
        ("gdb9.sdf.csv", lambda path: path.write_bytes(b"\xff" * 9), "must be UTF-8"),
        ("gdb9.sdf.csv", replace("gdb_1,", "x" * 200_000 + ","), "gdb9.sdf.csv must be a table with commas"),
    ],
)
def test_damaged_files_are_refused_by_name(
    data_dir: Path, name: str, damage: Callable[[Path], None], message: str
) -> None:
    damage(data_dir / "qm9" / name)
    with pytest.raises(DataError, match=message) as caught:
        read(data_dir)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["gdb9.sdf.gz", "gdb9.sdf.csv.gz"])
def test_cut_gzip_files_are_refused(tmp_path: Path, name: str) -> None:
    root = write_qm9(tmp_path, packed=True)
    cut(root / "qm9" / name, 0.6)
    with pytest.raises(DataError, match=f"{name} is damaged or cut short"):
        read(root)


def test_nameless_files_of_other_lengths_are_refused(tmp_path: Path) -> None:
    root = write_qm9(tmp_path, titles=[""] * len(SMILES))
    cut(root / "qm9" / "gdb9.sdf.csv", 0.5)
    with pytest.raises(
        DataError, match=r"must hold a row for each molecule of gdb9.sdf, got \d+ rows for 14 molecules"
    ):
        read(root)


def test_more_molecules_than_there_are_is_refused(data_dir: Path) -> None:
    with pytest.raises(DataError, match=r"gdb9.sdf must hold 15 molecules, got 14"):
        read(data_dir, 15)


def test_a_damaged_list_of_uncharacterized_molecules_is_refused(data_dir: Path) -> None:
    (data_dir / "qm9" / "uncharacterized.txt").write_text("heading\n" * 12)
    with pytest.raises(DataError, match=r"uncharacterized.txt must begin each line with an index"):
        read(data_dir)


def test_nothing_at_all_is_one_line_with_both_remedies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("GROKFAST_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r'put gdb9.sdf and gdb9.sdf.csv into .*qm9, or pip install "grokfast\[qm9\]"'):
        read(None)


@pytest.mark.parametrize("package", ["rdkit", "torch_geometric.nn"])
def test_missing_packages_are_one_line_with_a_remedy(
    data_dir: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DataError, match=r'^the qm9 task needs \w+: pip install "grokfast\[qm9\]"$'):
        Qm9Task(small(), data_dir=data_dir)


# Batches and the model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [[0], [12, 3, 7], [5, 5], list(range(13))])
def test_a_batch_is_pytorch_geometric_s(data_dir: Path, chosen: list[int]) -> None:
    task = Qm9Task(small(), data_dir=data_dir)
    batch, theirs = task.gather(torch.tensor(chosen)), as_pyg(task.graphs, chosen)
    assert len(batch) == len(chosen)
    assert torch.equal(batch.atoms, theirs.x)
    assert torch.equal(batch.edges, theirs.edge_index)
    assert torch.equal(nn.functional.one_hot(batch.bonds, 4).float(), theirs.edge_attr)
    assert torch.equal(batch.owner, theirs.batch)
    assert torch.equal(batch.targets, theirs.y)


@pytest.mark.parametrize(("variant", "pool"), [("released", "global_add_pool"), ("paper", "global_mean_pool")])
def test_the_loss_is_that_of_the_obvious_model(data_dir: Path, variant: Any, pool: str) -> None:
    """Written out with PyTorch Geometric's own parts, drawn from the same seed, all parameters times three."""
    task = Qm9Task(small(variant=variant, fast=False), seed=4, data_dir=data_dir)
    import torch_geometric.nn as gnn

    torch.manual_seed(4)
    first = gnn.NNConv(11, 6, nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 66)))
    second = gnn.NNConv(6, 5, nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 30)))
    head = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1))
    for mine, theirs in zip(task.model.parameters(), nn.ModuleList([first, second, head]).parameters(), strict=True):
        assert torch.equal(mine, theirs * 3)
        theirs.data.mul_(3)
    order = torch.randperm(13)  # next in the stream
    data = as_pyg(task.graphs, order[6:].tolist())
    hidden = first(data.x, data.edge_index, data.edge_attr).relu()
    hidden = second(hidden, data.edge_index, data.edge_attr).relu()
    outputs = head(getattr(gnn, pool)(hidden, data.batch))[:, 0]
    found = task.evaluate("val")
    assert found.loss == pytest.approx(mse_loss(outputs, data.y).item(), rel=1e-6)
    variance = task.graphs.targets.var(correction=0).item()
    assert found.more == {"loss_over_variance": pytest.approx(found.loss / variance)}


def gradients(task: Qm9Task, batch: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    loss, correct = task.loss(batch)
    assert correct is None
    return loss, list(torch.autograd.grad(loss, list(task.model.parameters())))


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("seed", range(3))
def test_the_fast_path_has_the_loss_and_gradients_of_nnconv(data_dir: Path, pooling: Any, seed: int) -> None:
    fast, plain = (Qm9Task(small(fast=fast, pooling=pooling), seed=seed, data_dir=data_dir) for fast in (True, False))
    batch = fast.gather(torch.arange(13))
    (loss, mine), (expected, theirs) = gradients(fast, batch), gradients(plain, batch)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    assert any(bool(grad.any()) for grad in theirs)
    for one, other in zip(mine, theirs, strict=True):
        assert float((one - other).norm()) <= 1e-5 * float(other.norm())


def test_each_epoch_is_one_permutation_of_the_training_half(data_dir: Path) -> None:
    task = Qm9Task(small(), seed=2, data_dir=data_dir)
    train = sorted(float(task.graphs.targets[i]) for i in task.train)
    assert task.epoch_steps == 2
    epochs = [[task.next_batch() for _ in range(2)] for _ in range(3)]
    assert [[len(batch) for batch in epoch] for epoch in epochs] == [[4, 2]] * 3
    orders = [[float(target) for batch in epoch for target in batch.targets] for epoch in epochs]
    assert all(sorted(order) == train for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    val = {float(target) for batch in task.splits["val"] for target in batch.targets}
    assert len(val) == 7
    assert not val & set(train)


def test_building_and_batches_leave_the_global_stream_alone(data_dir: Path) -> None:
    before = torch.get_rng_state()
    Qm9Task(small(), data_dir=data_dir).next_batch()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_resume_equals_uninterrupted(data_dir: Path, steps: int) -> None:
    task, other = (Qm9Task(small(), seed=seed, data_dir=data_dir) for seed in (1, 1))
    for _ in range(steps):
        task.next_batch()
    other.load_state_dict(copy.deepcopy(task.state_dict()))
    for _ in range(5):
        assert torch.equal(task.next_batch().targets, other.next_batch().targets)


def test_other_data_cannot_continue_a_run(data_dir: Path) -> None:
    state = Qm9Task(small(), data_dir=data_dir).state_dict()
    replace("104.25", "105.25")(data_dir / "qm9" / "gdb9.sdf.csv")
    with pytest.raises(DataError, match="other data"):
        Qm9Task(small(), data_dir=data_dir).load_state_dict(state)


def test_training_lowers_the_loss(data_dir: Path) -> None:
    task = Qm9Task(small(target="A", init_scale=1.0), data_dir=data_dir)
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=0.01)
    before = task.evaluate("train")
    for _ in range(60):
        optimizer.zero_grad()
        task.loss(task.next_batch())[0].backward()
        optimizer.step()
    assert before.accuracy is None
    assert task.evaluate("train").loss < 0.5 * before.loss


# Settings -----------------------------------------------------------------------------------------------------------


def test_variants_differ_in_pooling_and_steps(data_dir: Path) -> None:
    released, paper = (Qm9Task(small(variant=variant), data_dir=data_dir) for variant in ("released", "paper"))
    assert (released.model.pooling, paper.model.pooling) == ("sum", "mean")
    assert (released.config.defaults().steps, paper.config.defaults().steps) == (100_000, 50_000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"molecules": 1}, "molecules must be >= 2, got 1"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"target": "beta"}, "target must be one of A, B, .*, got 'beta'"),
        ({"pooling": "max"}, "pooling must be one of sum, mean, got 'max'"),
        ({"variant": "mine"}, "variant must be one of released, paper, got 'mine'"),
        ({"train_fraction": 1.0}, r"train_fraction must be in \(0, 1\), got 1.0"),
        ({"train_fraction": 0.01}, "train_fraction must leave both splits a molecule, got 0.01"),
        ({"init_scale": float("inf")}, "init_scale must be > 0 and finite, got inf"),
    ],
)
def test_wrong_settings_are_refused_by_name_and_value(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**changes)


# The real data ------------------------------------------------------------------------------------------------------


@real_data
def test_the_first_hundred_are_pytorch_geometric_s(tmp_path: Path) -> None:
    graphs = read_molecules(None, count=100, target="alpha")
    assert graphs.numbers.tolist() == [i for i in range(1, 104) if i not in (58, 61, 80)]
    assert float(graphs.targets[0]) == pytest.approx(13.21)
    assert graphs.atoms[0].tolist() == [0, 1, 0, 0, 0, 6, 0, 0, 0, 0, 4]
    sdf, table = locate(None, FOLDERS, SDF, wanted="gdb9.sdf"), locate(None, FOLDERS, CSV, wanted="gdb9.sdf.csv")
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "gdb9.sdf").write_text("$$$$\n".join([*read_text(sdf).split("$$$$\n", 103)[:103], ""]))
    (tmp_path / "raw" / "gdb9.sdf.csv").write_text("\n".join([*read_text(table).splitlines()[:104], ""]))
    skip = read_uncharacterized(sdf.parent / "uncharacterized.txt")
    write_uncharacterized(tmp_path / "raw" / "uncharacterized.txt", sorted(skip))
    assert_pyg_reads_the_same(graphs, tmp_path)


@real_data
@real_package
def test_the_first_thousand_of_the_package_are_those_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = read_molecules(None, count=1000, target="alpha")
    monkeypatch.setenv("GROKFAST_DATA", str(tmp_path))
    assert same(read_molecules(None, count=1000, target="alpha"), files)


@real_data
def test_paths_agree_on_the_real_molecules() -> None:
    fast, plain = (Qm9Task(Qm9Config(fast=fast)) for fast in (True, False))
    assert fast.epoch_steps == 2
    batch = fast.next_batch()
    (loss, mine), (expected, theirs) = gradients(fast, batch), gradients(plain, batch)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    for one, other in zip(mine, theirs, strict=True):
        assert float((one - other).norm()) <= 1e-5 * float(other.norm())
