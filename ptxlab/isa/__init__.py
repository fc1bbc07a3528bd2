"""What each instruction does, as functions on numpy arrays. The single source of every map and table."""
