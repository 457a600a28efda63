"""`coalmine` and `python -m coalmine`: the command line, with nothing imported before Ctrl-C is heard."""

import sys
from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line; Ctrl-C is one line at any time, while Python still imports as well."""
    try:
        from coalmine.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("coalmine: interrupted.\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
