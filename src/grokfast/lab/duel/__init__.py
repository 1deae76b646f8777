"""Does it help? Arms that are tuned alike, then compared on fresh seeds. Needs `pip install "grokfast[rivals]"`."""
