"""From scores to statements: one method per file, each returning a `PointEstimate` or a `LowerBound`."""
