"""Complete runs as a few tables in one folder, readable with any tool, such as results/.

    runs.csv          a row per run: name, experiment, settings, `summary.*`, `environment.*`
    curves.parquet    a row per evaluation, floats to five digits, or to all if five would move a crossing
    weights.csv       a row per snapshot: the distance from the initial weights, and the position on two axes
    spectra.parquet   spectra of recorded gradients, a row per phase and frequency
    gains.parquet     the filter's gain in power, measured and in theory, a row per frequency
    SHA256SUMS        a digest of each file; reading checks it

A cell of a .csv is empty if the run has no such setting. Text is plain, everything else is JSON: null, [0.9, 0.98].
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grokfast.lab.runs.directory import KEPT, Run, RunError
from grokfast.lab.runs.files import sha256, write_atomically
from grokfast.lab.runs.metrics import Row, crossings, shorten

if TYPE_CHECKING:
    import polars as pl

RUNS, CURVES, WEIGHTS, SPECTRA, GAINS, SUMS = (
    KEPT,
    "curves.parquet",
    "weights.csv",
    "spectra.parquet",
    "gains.parquet",
    "SHA256SUMS",
)
DIGITS = 5  # of a float in a curve
PARTS = ("summary", "environment")  # column groups of runs.csv besides the settings
MORE = "more."  # columns of measures that only some tasks have
PLACES = ("--runs-dir", "--data-dir", "--sweep-dir", "-o", "--out")  # flags that name a directory


# Reading ------------------------------------------------------------------------------------------------------------


def read_tables(folder: Path) -> list[Run]:
    """The runs of a folder of tables, by name; RunError names a file that does not fit its digest."""
    curves = read_parquet(folder / CURVES).partition_by("name", as_dict=True)
    derived = read_derived(folder)
    found: list[Run] = []
    for line in read_csv(folder / RUNS):
        name, experiment, parts = line["name"], line["experiment"], split(line)
        rows = functools.cache(functools.partial(rows_of, curves[name,]))  # most readers need few of them
        tables = derived.get(name, {})
        found.append(Run.from_table(folder / name, experiment=experiment, rows=rows, tables=tables, **parts))
    return found


def read_checked(path: Path) -> bytes:
    """The content of a file of a folder of tables, if it fits the digest that the folder keeps of it."""
    content, sums = path.read_bytes(), path.with_name(SUMS)
    lines = sums.read_text(encoding="utf-8").splitlines() if sums.exists() else []
    known = {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}
    if path.name not in known:
        raise RunError(f"{path} must have its digest in {sums}, got none")
    if sha256(content) != known[path.name]:
        raise RunError(f"{path} was changed: it does not fit its digest in {sums}")
    return content


def read_csv(path: Path) -> list[dict[str, Any]]:
    """The rows of a checked .csv by column, without empty cells; values as they were written."""
    text = read_checked(path).decode()
    return [
        {key: from_cell(cell) for key, cell in line.items() if cell != ""} for line in csv.DictReader(io.StringIO(text))
    ]


def read_parquet(path: Path) -> pl.DataFrame:
    """A checked .parquet."""
    import polars as pl

    return pl.read_parquet(io.BytesIO(read_checked(path)))


def from_cell(cell: str) -> Any:
    """
    >>> [from_cell(cell) for cell in ("adam", "0.9", "null", "[0.9, 0.98]", '"12"')]
    ['adam', 0.9, None, [0.9, 0.98], '12']
    """
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def split(line: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings, the summary and the environment of a row of runs.csv."""
    found: dict[str, dict[str, Any]] = {part: {} for part in ("settings", *PARTS)}
    for key, value in line.items():
        part, _, rest = key.partition(".")
        if part in PARTS and rest:
            *path, last = rest.split(".")
            place = found[part]
            for step in path:
                place = place.setdefault(step, {})
            place[last] = value
        elif key not in ("name", "experiment"):
            found["settings"][key] = value
    return found


def rows_of(curve: pl.DataFrame) -> list[Row]:
    return [to_row(line) for line in curve.iter_rows(named=True)]


def to_row(line: Mapping[str, Any]) -> Row:
    more = {key.removeprefix(MORE): value for key, value in line.items() if key.startswith(MORE) and value is not None}
    return Row(**{name: line[name] for name in Row._fields if name != "more"}, more=more or None)


def read_derived(folder: Path) -> dict[str, dict[str, Any]]:
    """The derived tables of each run, by its name: "weights" and "spectra"."""
    found: dict[str, dict[str, Any]] = {}
    if (folder / WEIGHTS).exists():
        for name, lines in itertools.groupby(read_csv(folder / WEIGHTS), key=lambda line: line["name"]):
            found.setdefault(name, {})["weights"] = weights_of(list(lines))
    if (folder / SPECTRA).exists():
        phases, gains = (read_parquet(folder / file).partition_by("name", as_dict=True) for file in (SPECTRA, GAINS))
        for (name,), part in phases.items():
            found.setdefault(name, {})["spectra"] = {"phases": phases_of(part), "gain": gain_of(gains[name,])}
    return found


def weights_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = lines[0]
    table = {"parameters": first["parameters"], "bc": first["bc"]}
    table |= {"steps": [line["step"] for line in lines], "moved": [line["moved"] for line in lines]}
    if first["axes_of"] is not None:
        table |= {"axes_of": first["axes_of"], "points": [[line["x"], line["y"]] for line in lines]}
    return table


def phases_of(part: pl.DataFrame) -> dict[str, Any]:
    return {
        name: {key: each[key][0] for key in ("start", "stop", "segment")}
        | {key: each[key].to_list() for key in ("before", "after")}
        for (name,), each in part.partition_by("phase", as_dict=True, maintain_order=True).items()
    }


def gain_of(part: pl.DataFrame) -> dict[str, Any]:
    return {key: part[key].to_list() for key in ("frequency", "measured", "theory")}


# Writing ------------------------------------------------------------------------------------------------------------


def write_tables(runs: Sequence[Run], folder: Path) -> None:
    """Write complete runs as tables; the same runs give the same bytes. Other files of the folder are left alone."""
    import polars as pl

    for run in runs:
        if run.summary is None:
            raise RunError(f"{run.name} must be complete to be kept")
    ordered = sorted(runs, key=lambda run: run.name)
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / RUNS, [to_line(run) for run in ordered])
    write_parquet(folder / CURVES, [curve_frame(run) for run in ordered])
    weights = [weight_lines(run.name, run.tables["weights"]) for run in ordered if "weights" in run.tables]
    if weights:
        write_csv(folder / WEIGHTS, [line for lines in weights for line in lines])
    spectra = [(run.name, run.tables["spectra"]) for run in ordered if "spectra" in run.tables]
    if spectra:
        write_parquet(folder / SPECTRA, [f for name, table in spectra for f in phase_frames(name, table["phases"])])
        write_parquet(folder / GAINS, [pl.DataFrame({"name": name, **table["gain"]}) for name, table in spectra])
    seal(folder)


def seal(folder: Path) -> None:
    """Write the digests of all files of a folder of tables."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".csv", ".parquet"))
    lines = [f"{sha256(path.read_bytes())}  {path.name}\n" for path in files]
    write_atomically(folder / SUMS, "".join(lines).encode())


def write_csv(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write rows by column as a .csv; a cell is empty if a row has no such column."""
    text = io.StringIO()
    writer = csv.DictWriter(text, merge_columns(lines), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: to_cell(value) for key, value in line.items()} for line in lines)
    write_atomically(path, text.getvalue().encode())


def merge_columns(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """All columns in the order of the rows: the settings of a filter stay after it.

    >>> merge_columns([{"filter": None, "lr": 1}, {"filter": "ema", "alpha": 0.9, "lr": 1}])
    ['filter', 'alpha', 'lr']
    """
    columns: list[str] = []
    for line in lines:
        place = 0
        for key in line:
            if key not in columns:
                columns.insert(place, key)
            place = columns.index(key) + 1
    return columns


def to_cell(value: Any) -> str:
    """A value as text that `from_cell` reads back.

    >>> [to_cell(value) for value in ("adam", 0.9, None, [0.9, 0.98], "12")]
    ['adam', '0.9', 'null', '[0.9, 0.98]', '"12"']
    """
    if isinstance(value, str) and value and from_cell(value) is value:
        return value
    return json.dumps(value)


def write_parquet(path: Path, frames: Sequence[pl.DataFrame]) -> None:
    import polars as pl

    content = io.BytesIO()
    pl.concat(frames, how="diagonal_relaxed").write_parquet(content, compression="zstd", compression_level=19)
    write_atomically(path, content.getvalue())


def to_line(run: Run) -> dict[str, Any]:
    """A run as a row of runs.csv, without the directories of a machine."""
    settings = {**run.settings, "data_dir": None}
    environment = {**run.environment, "command": without_places(run.environment.get("command"))}
    parts = {part: flatten(values, part) for part, values in zip(PARTS, (run.summary or {}, environment), strict=True)}
    return {"name": run.name, "experiment": run.experiment, **settings, **parts["summary"], **parts["environment"]}


def flatten(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """
    >>> flatten({"seconds": 1.5, "first": {"after": 10}}, "summary")
    {'summary.seconds': 1.5, 'summary.first.after': 10}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}.{key}"
        found |= flatten(value, name) if isinstance(value, dict) and value else {name: value}
    return found


def curve_frame(run: Run) -> pl.DataFrame:
    """The evaluations of a run, to five digits if these do not change its crossings."""
    import polars as pl

    few = [Row(*(shorten(value, DIGITS) for value in row)) for row in run.rows]
    same = crossings(few, run.level, run.measure) == crossings(run.rows, run.level, run.measure)
    lines = [to_curve_line(row) for row in (few if same else run.rows)]
    kinds = {name: pl.Int64 if name in ("step", "samples") else pl.Float64 for line in lines[:1] for name in line}
    return pl.DataFrame(lines, schema_overrides=kinds, infer_schema_length=None).select(
        pl.lit(run.name).alias("name"), pl.all()
    )


def to_curve_line(row: Row) -> dict[str, float | int | None]:
    plain = {name: value for name, value in row._asdict().items() if name != "more"}
    return plain | {MORE + key: value for key, value in (row.more or {}).items()}


def weight_lines(name: str, table: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    points = table.get("points") or [[None, None]] * len(table["steps"])
    for step, moved, (x, y) in zip(table["steps"], table["moved"], points, strict=True):
        line = {"name": name, "step": step, "moved": moved, "x": x, "y": y}
        yield line | {key: table.get(key) for key in ("bc", "parameters", "axes_of")}


def phase_frames(name: str, phases: Mapping[str, Any]) -> list[pl.DataFrame]:
    import polars as pl

    return [pl.DataFrame({"name": name, "phase": phase, **values}) for phase, values in phases.items()]


def without_places(command: Any) -> Any:
    """A command without the directories of a machine.

    >>> without_places(["grokfast", "train", "modmul", "--runs-dir", "x", "--lr", "0.01", "--data-dir=y"])
    ['grokfast', 'train', 'modmul', '--lr', '0.01']
    """
    if not isinstance(command, list):
        return command
    before: list[str] = ["", *command[:-1]]
    named = tuple(f"{flag}=" for flag in PLACES)
    pairs = zip(before, command, strict=False)
    kept = [word for last, word in pairs if not {last, word} & set(PLACES) and not word.startswith(named)]
    return [Path(word).name if Path(word).is_absolute() else word for word in kept]
