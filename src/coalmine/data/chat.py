"""Chats of real users: the bundled default, from the package chitchat-dataset.

7,168 conversations of 1,315 users with 258,145 utterances, from the Chit Chat Challenge; about 12 million characters, all
of them printable ASCII. The package has one JSON file:

    {"<conversation>": {"messages": [[{"text": "Hello", "sender": "<user>", "timestamp": "…"}, …], …], …}, …}

An utterance is a text; a user's utterances keep the order of the file. Half of the users have 17 or fewer and one has 25,272:
cap them, since one client may not be worth a tenth of the training.
"""

import json
from importlib.util import find_spec
from pathlib import Path

from coalmine.data._files import broken, existing, needs
from coalmine.data.texts import FederatedTexts, TextsInMemory, texts_dataset


def read_chat(path: str | Path | None = None) -> FederatedTexts:
    """The utterances of all users, from the installed package or from a file of the same layout."""
    if path is None:
        package = find_spec("chitchat_dataset")
        if package is None or package.origin is None:
            raise needs("chitchat-dataset", what="the data set of chats")
        path = Path(package.origin).parent / "dataset.json"
    path = existing(path, what="the chats of chitchat-dataset as JSON")
    texts: dict[str, list[str]] = {}
    try:
        for conversation in json.loads(path.read_text(encoding="utf-8")).values():
            for message in conversation["messages"]:
                for utterance in message:
                    texts.setdefault(_text(utterance["sender"]), []).append(_text(utterance["text"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise broken(path, error, what="a JSON file of chats") from None
    return texts_dataset("chat", TextsInMemory(texts))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"sender and text must be text, found {value!r:.40}")
    return value
