"""Which cells depend on which: read from their sources, nothing is run."""
