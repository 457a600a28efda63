"""The toys of these batteries are a module that other processes can import as well: workers, and interpreters of their own."""

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)

if HERE not in sys.path:
    sys.path.insert(0, HERE)
