"""Check the wheel and the sdist, then install the wheel into an empty environment and use library and lab.

python tools/try_dist.py dist
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "grokfast"
IN_SDIST = {".gitignore", "CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "src"}
LIMIT = 1 << 20  # bytes; a data set or the archived runs would be larger

ATTACH = """
import torch, grokfast
model = torch.nn.Linear(10, 2)
optimizer = torch.optim.AdamW(model.parameters())
handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.98, lamb=2.0))
for _ in range(2):
    model(torch.ones(4, 10)).sum().backward()
    before = model.weight.grad.clone()
    optimizer.step()
    assert torch.equal(model.weight.grad, 3 * before), (before, model.weight.grad)  # a constant gradient is all slow
    optimizer.zero_grad()
print(f"grokfast {grokfast.__version__} with torch {torch.__version__}: two steps with a filter")
"""

TRAIN = ["train", "modmul", "--p", "7", "--width", "8", "--heads", "2", "--depth", "1", "--steps", "20", "--quiet"]


def main(folder: Path) -> None:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")  # one of each
    check_wheel(wheel)
    check_sdist(sdist)
    with tempfile.TemporaryDirectory(prefix="grokfast-dist-") as place:
        home = Path(place)
        venv.create(home / "env", with_pip=True)
        try_library(home, wheel)
        try_lab(home, wheel)


def check_wheel(wheel: Path) -> None:
    """The wheel has every file of the package and no other."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(["git", "ls-files", PACKAGE], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    expect(names, {name.removeprefix("src/") for name in tracked.splitlines()}, wheel.name)
    check_size(wheel)


def check_sdist(sdist: Path) -> None:
    """The sdist is what builds the wheel: no tests, no results."""
    with tarfile.open(sdist) as archive:
        expect({name.split("/")[1] for name in archive.getnames()}, IN_SDIST, sdist.name)
    check_size(sdist)


def check_size(path: Path) -> None:
    size = path.stat().st_size
    if size > LIMIT:
        raise SystemExit(f"{path.name} must be at most {LIMIT:,} bytes, got {size:,}")
    print(f"{path.name}: {size:,} bytes")


def expect(found: set[str], wanted: set[str], where: str) -> None:
    if found != wanted:
        raise SystemExit(f"{where}: too much {sorted(found - wanted)}, missing {sorted(wanted - found)}")


def try_library(home: Path, wheel: Path) -> None:
    """The library installs only torch and its dependencies."""
    install(home, "torch")
    before = installed(home)
    install(home, str(wheel))
    expect(installed(home) - before, {"grokfast"}, "pip install grokfast, after torch")
    print(f"without extras: {', '.join(sorted(installed(home)))}")
    run(home, "python", "-c", ATTACH)


def try_lab(home: Path, wheel: Path) -> None:
    install(home, f"{wheel}[lab]")
    run(home, "grokfast", "--version")
    run(home, "grokfast", *TRAIN)
    run(home, "grokfast", *TRAIN, "--filter", "ema")
    run(home, "grokfast", "report", "-o", "report.html")


def installed(home: Path) -> set[str]:
    listing = run(home, "pip", "list", "--format=freeze", quiet=True)
    return {line.split("==")[0] for line in listing.splitlines()}


def install(home: Path, what: str) -> None:
    constraints = str(ROOT / "constraints.txt")
    run(home, "pip", "install", "--quiet", "--disable-pip-version-check", "-c", constraints, what, quiet=True)


def run(home: Path, program: str, *arguments: str, quiet: bool = False) -> str:
    """Run a program of the new environment; packages of this checkout cannot be imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(home / "env" / "bin" / program), *arguments]
    done = subprocess.run(command, cwd=home, env=environment, stdout=subprocess.PIPE, text=True, timeout=900)
    if done.returncode:
        raise SystemExit(f"{program} {' '.join(arguments[:2])} failed with exit code {done.returncode}")
    if not quiet:
        print(done.stdout, end="")
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
