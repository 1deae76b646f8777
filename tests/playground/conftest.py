"""The playground's page, and its modules in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from browser import browser as browser
from browser import visit as visit
from grokfast.playground import ENGINE, PAGE, script, write_page

MODULES = [module for module in (*ENGINE, *PAGE) if module not in ("drawing", "page")]  # these two need a page


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("playground") / "playground.html"
    write_page(path)
    return path


@pytest.fixture(scope="session")
def in_node() -> Callable[[str, Any], Any]:
    """Calls a function of JavaScript with the modules of the playground around it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")

    def call(function: str, given: Any) -> Any:
        asked = f"console.log(JSON.stringify(({function})(JSON.parse(require('fs').readFileSync(0, 'utf8')))));"
        program = [node, "-e", f"{script(*MODULES)}\n{asked}"]
        done = subprocess.run(program, input=json.dumps(given), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call
