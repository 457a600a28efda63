"""Doctests of docstrings as code blocks of the API reference: in plain Markdown their output would be read as links."""

import re

import griffe

# A prompt at the start of a line, and all lines after it up to an empty one.
DOCTEST = re.compile(r"^( *)>>> .*(?:\n *\S.*)*", re.MULTILINE)


class ExamplesInDocstrings(griffe.Extension):
    """Puts a fence around every doctest."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Change the docstring of one object before it is read."""
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(
                lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", obj.docstring.value
            )
