"""Many runs: sweeps over settings and duels between arms, on one engine. Needs `pip install "grokfast[sweep]"`."""
