"""Run the core's tests with the oldest and the newest supported pair of Python and torch.

    python tools/versions.py                       # both pairs, in environments in the system's temporary folder
    python tools/versions.py 3.12+2.8.0 --home DIR # another pair, in DIR/3.12+2.8.0

Each Python must be on the PATH or in pyenv. torch is installed without its CUDA packages. If the build needs their
libraries, gcc makes stubs whose functions report that there is no device, and the tests run on the CPU.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAIRS = ("3.10+2.4.0", "3.13+2.15.0")  # the oldest and the newest that pass; README and pyproject.toml say the same
# What torch needs besides CUDA, and what the core's tests need.
PACKAGES = (
    "filelock fsspec jinja2 networkx setuptools sympy typing_extensions hypothesis numpy pytest pytest-xdist scipy"
)
ELSEWHERE = (
    "lab integrations playground release test_addition_runs.py test_docs.py test_examples.py test_notebook.py "
    "test_optax.py test_pages.py test_site.py"
)
CORE = (
    *(
        "tests",
        *(f"src/grokfast/{name}" for name in ("binding", "filters", "factory.py", "functional.py", "stages.py")),
    ),
    *(f"--ignore=tests/{name}" for name in ELSEWHERE.split()),
    "--deselect=tests/test_architecture.py::test_optax_works_without_torch",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", default=PAIRS, metavar="PYTHON+TORCH")
    parser.add_argument("--home", type=Path, default=Path(tempfile.gettempdir()) / "grokfast-versions")
    options = parser.parse_args()
    results = {pair: test(options.home.absolute() / pair, *pair.split("+")) for pair in options.pairs}
    print("\n| Python + torch | tests |\n|---|---|")
    for pair, (_, summary) in results.items():
        print(f"| {pair.replace('+', ' + ')} | {summary} |")
    sys.exit(max(code for code, _ in results.values()))


def test(home: Path, python: str, torch: str) -> tuple[int, str]:
    """Run the tests of one pair; its exit code and pytest's last line."""
    program = home / "bin" / "python"
    if not (home / "ready").exists():
        make_environment(home, python, torch)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [program, "-m", "pytest", "-q", "-n", "1", "-rsfE", "-p", "no:cacheprovider", *CORE]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    print(f"== {python} + {torch}\n{run.stdout[run.stdout.rfind('100%]') :]}{run.stderr}")
    return run.returncode, run.stdout.splitlines()[-1]


def make_environment(home: Path, python: str, torch: str) -> None:
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([find_python(python), "-m", "venv", home], check=True)
    install = [home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *PACKAGES.split()], check=True)
    subprocess.run([*install, "--no-deps", f"torch=={torch}"], check=True)
    make_stubs(next(home.glob("lib/python*/site-packages/torch/lib")))
    subprocess.run([home / "bin" / "python", "-c", "import torch; torch.ones(2).sum()"], check=True)
    (home / "ready").touch()


def find_python(version: str) -> str:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    own = sorted(pyenv.glob(f"{version}.*/bin/python"))
    found = own[-1] if own else shutil.which(f"python{version}")
    if found is None:
        raise SystemExit(f"Python {version} is neither in pyenv nor on the PATH")
    return str(found)


def make_stubs(folder: Path) -> None:
    """Make the libraries that torch was linked with and that are not on this machine; none for a CPU build."""
    files = [*folder.glob("*.so*"), *folder.parent.glob("_C*.so")]
    needed = {name for file in files for name in re.findall(r"NEEDED.*\[(.*)\]", read("readelf", "-d", file))}
    machine = read("/sbin/ldconfig", "-p")
    missing = sorted(name for name in needed if not (folder / name).exists() and f"\t{name} (" not in machine)
    if not missing:
        return
    versions = {name: versions_of(name, files) for name in missing}
    wanted = defaultdict[str, set[str]](set)  # version -> names of functions
    for file in files:
        for line in read("nm", "-D", "--undefined-only", file).splitlines():
            name, _, version = line.split()[-1].partition("@")
            wanted[version].add(name)
    defined = {
        line.split()[-1].partition("@")[0] for f in files for line in read("nm", "-D", "--defined-only", f).splitlines()
    }
    # A function without a version may belong to any library without versions.
    loose = {name for name in wanted[""] - defined if re.match("cu|nccl|nv", name)}
    for library in missing:
        make_stub(folder / library, {version: wanted[version] for version in versions[library]} or {"": loose})


def versions_of(library: str, files: list[Path]) -> set[str]:
    """The symbol versions that any of the files needs from a library."""
    found = set[str]()
    for file in files:
        owner = ""
        for line in read("readelf", "-V", "-W", file).splitlines():
            if match := re.search(r"File: (\S+)", line):
                owner = match[1]
            elif (match := re.search(r"Name: (\S+)", line)) and owner == library:
                found.add(match[1])
    return found


def make_stub(path: Path, functions: dict[str, set[str]]) -> None:
    """A library in which each function returns 100, CUDA's "no device", or a text if its name says so."""
    with tempfile.TemporaryDirectory() as folder:
        code, script = Path(folder, "stub.c"), Path(folder, "stub.map")
        names = sorted(set[str]().union(*functions.values()))
        texts = {"cudaGetErrorString", "cudaGetErrorName"}
        code.write_text(
            "".join(
                f'char *{n}() {{ return "no device"; }}\n' if n in texts else f"long {n}() {{ return 100; }}\n"
                for n in names
            )
        )
        script.write_text(
            "".join(f"{v} {{ global: {' '.join(f'{n};' for n in ns)} }};\n" for v, ns in functions.items() if v)
        )
        flags = [f"-Wl,--version-script={script}"] if script.stat().st_size else []
        subprocess.run(
            ["gcc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", *flags, "-o", path, code], check=True
        )


def read(*command: object) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
