"""The paper as data: its numbers, and the runs that its figures and tables take. Nothing here trains."""
