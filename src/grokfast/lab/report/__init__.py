"""Pictures and pages of runs, from their directories only: nothing here trains."""

from grokfast.lab.report.page import write_report as write_report
