"""The papers' tables as code: ours beside theirs, with the distance in standard errors."""
