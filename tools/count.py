"""Count the code: `python tools/count.py [--names] [REVISION ...]`; the working tree is counted last.

Nouns are classes and CamelCase aliases at the top level of the lab. A place that decides is a file with a function that
compares numbers and contains a word for the better side. stats.py should be the only one. `--names` lists the nouns and
the function names that are defined more than once.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOUN = re.compile(r"[A-Z][a-z]\w*")
DECIDED = re.compile(r"\b(faster|slower|better|worse|helps|hurts)\b")
ENTRY_POINTS = ("run", "add")  # every command has both


def files_of(revision: str | None) -> list[str]:
    """All files of a revision, or of the working tree as it would be committed."""
    if revision is None:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        return [name for name in sorted(set(output(*command).split("\n"))) if (ROOT / name).is_file()]
    return output("git", "ls-tree", "-r", "--name-only", revision).split("\n")


def text_of(name: str, revision: str | None) -> str:
    return (
        (ROOT / name).read_text(encoding="utf-8") if revision is None else output("git", "show", f"{revision}:{name}")
    )


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def name_of(node: ast.stmt) -> str:
    """What a statement at the top level of a module defines; empty if it is not a class or a plain assignment."""
    match node:
        case (
            ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name))
        ):
            return name
        case _:
            return ""


def decides(function: ast.FunctionDef) -> bool:
    """Whether a function compares numbers and holds a word for which side is better; its docstring does not count."""
    inner = [node for statement in function.body[bool(ast.get_docstring(function)) :] for node in ast.walk(statement)]
    ordered = (ast.Lt, ast.Gt, ast.LtE, ast.GtE)
    compared = any(isinstance(node, ast.Compare) and isinstance(node.ops[0], ordered) for node in inner)
    words = [node.value for node in inner if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return compared and any(DECIDED.search(word) for word in words)


def functions_in(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def count(revision: str | None, *, names: bool = False) -> dict[str, int]:
    files = files_of(revision)
    source = [name for name in files if name.startswith("src/") and name.endswith(".py")]
    trees: dict[str, ast.Module] = {}
    lines = 0
    for name in source:
        text = text_of(name, revision)
        lines += text.count("\n")
        trees[name] = ast.parse(text)
    top = {name: [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] for name, tree in trees.items()}
    public = Counter(f for names in top.values() for f in names if not f.startswith("_") and f not in ENTRY_POINTS)
    deciding = [f"{name}: {f.name}" for name, tree in trees.items() for f in functions_in(tree) if decides(f)]
    nouns = {
        name: [noun for node in tree.body if NOUN.fullmatch(noun := name_of(node))] for name, tree in trees.items()
    }
    nouns = {name: found for name, found in nouns.items() if "/lab/" in name and found}
    again = sorted(name for name, number in public.items() if number > 1)
    for place in deciding:
        print(f"  decides: {place}")
    if names:
        print("".join(f"  {name}: {', '.join(found)}\n" for name, found in nouns.items()), end="")
        print(f"  more than once: {', '.join(again)}")
    return {
        "nouns in the lab": sum(map(len, nouns.values())),
        "function names defined more than once": len(again),
        "files in src": len(source),
        "lines of src": lines,
        "files in results/": sum(name.startswith("results/") for name in files),
        "commands": sum("/commands/" in name and set(ENTRY_POINTS) <= set(names) for name, names in top.items()),
        'places that decide "faster"': len({place.partition(":")[0] for place in deciding}),
    }


def main() -> int:
    columns: dict[str, dict[str, int]] = {}
    words = [word for word in sys.argv[1:] if word != "--names"]
    for revision in [*words, None]:
        title = revision or "working tree"
        print(title)
        columns[title] = count(revision, names="--names" in sys.argv)
    print()
    print(f"{'':40}" + "".join(f"{title:>14}" for title in columns))
    for row in next(iter(columns.values())):
        print(f"{row:40}" + "".join(f"{column[row]:>14,}" for column in columns.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
