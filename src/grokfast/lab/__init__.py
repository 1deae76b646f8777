"""The lab: the paper's tasks, one training loop, run directories, reports. Needs `pip install "grokfast[lab]"`."""

from grokfast.lab.runs.directory import Run as Run
from grokfast.lab.runs.directory import load_runs as load_runs
