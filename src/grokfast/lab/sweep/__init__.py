"""Many runs: settings from grids or a search, each with every seed. Needs `pip install "grokfast[sweep]"`."""
