"""How fast the playground trains in a headless Chromium, and when its presets memorise and understand.

    python benchmarks/playground.py              steps per second of each network, both at once
    python benchmarks/playground.py --presets    also the presets over five seeds, in Node (two minutes); fails if one
                                                 of them no longer shows what it should

Needs chromium, and node for the presets. Measure speeds on a machine with two cores and no other work.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from timing import Table, show

from grokfast.playground import ENGINE, script, write_page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SEEDS, NEVER = 5, math.inf
# Between which steps the network without a filter and the one with it understand, for every seed of each preset.
RANGES = [
    ((5000, NEVER), (1200, 2400)),  # the paper's claim
    ((2000, 5000), (1000, 2000)),  # a little decay
    ((250, 500), (500, 1000)),  # decay alone
    ((2000, 5000), (NEVER, NEVER)),  # too strong
    ((250, 500), (250, 600)),  # start late
]
# From the first to the last evaluation of a race that is not slowed down.
RACE = """async ({values, budget}) => {
  document.getElementById("speed").value = "full";
  settings = {...settings, ...values};
  reset(true);
  race.toBudget = true;
  const begin = performance.now();
  const ends = networks.map(() => null);
  while (ends.includes(null)) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    networks.forEach(({latest}, i) => {
      if (ends[i] === null && latest?.step >= budget) ends[i] = latest.step / (performance.now() - begin);
    });
  }
  return ends.map((rate) => Math.round(1000 * rate));
}"""


def speeds(budget: int, executable: str) -> Table:
    from playwright.sync_api import sync_playwright

    rows: Table = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "playground.html"
        write_page(path)
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        page.goto(path.as_uri())
        for name, values in {
            "EMA, batches of 64": {},
            "MA, batches of 64": {"filter": "ma"},
            "EMA, cross-entropy": {"loss": "cross-entropy"},
            "EMA, all sums": {"batch": "all"},
        }.items():
            without, filtered = page.evaluate(RACE, {"values": values, "budget": budget})
            rows.append({"race": name, "steps/s without": without, "steps/s with filter": filtered})
            page.evaluate("settings = {...DEFAULTS}")
        browser.close()
    return rows


def presets() -> Table:
    """When each preset memorises and understands, from the lowest to the highest seed."""
    asked = f"""console.log(JSON.stringify(PRESETS.map((preset) => ({{
      preset: preset.name,
      seeds: Array.from({{length: {SEEDS}}}, (_, seed) => {{
        const settings = presetSettings(preset, seed);
        return [runToEnd({{...settings, filter: "none"}}, BUDGET), runToEnd(settings, BUDGET)];
      }}),
    }}))))"""
    program = ["node", "-e", f"{script(*ENGINE, 'settings')}\n{asked}"]
    found: list[dict[str, Any]] = json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
    rows: Table = []
    for each, ranges in zip(found, RANGES, strict=True):
        row: dict[str, object] = {"preset": each["preset"]}
        for place, name in enumerate(("without", "with filter")):
            low, high = ranges[place]
            steps = [seed[place]["understood"] for seed in each["seeds"]]
            row[f"memorised {name}"] = ", ".join(str(seed[place]["memorised"] or "-") for seed in each["seeds"])
            row[f"understood {name}"] = ", ".join(str(step or "-") for step in steps)
            row[f"{name} in range"] = all(low <= (step or NEVER) <= high for step in steps)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", action="store_true", help="also run the presets over five seeds")
    parser.add_argument("--steps", type=int, default=3000, help="of each race that is timed (default: 3000)")
    args = parser.parse_args()
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        parser.error(f"needs one of {', '.join(BROWSERS)}")
    show("Steps per second of two networks at once", speeds(args.steps, executable))
    if args.presets:
        rows = presets()
        show(f"Steps, seeds 0 to {SEEDS - 1}; -: not within the budget", rows)
        if not all(row[f"{name} in range"] for row in rows for name in ("without", "with filter")):
            raise SystemExit("a preset no longer tells its story")


if __name__ == "__main__":
    main()
