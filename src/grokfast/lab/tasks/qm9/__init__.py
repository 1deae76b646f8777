"""QM9: a property of small molecules, by a graph network."""
