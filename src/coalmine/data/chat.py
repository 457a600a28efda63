"""Chats of real users: the bundled default, from the package chitchat-dataset.

7,168 conversations of 1,315 users with 258,145 utterances, from the Chit Chat Challenge; about 12 million characters, all
of them printable ASCII. The package has one JSON file:

    {"<conversation>": {"messages": [[{"text": "Hello", "sender": "<user>", "timestamp": "…"}, …], …], …}, …}

An utterance is a text; a user's utterances keep the order of the file. Half of the users have 17 or fewer and one has 25,272:
cap them, since one client may not be worth a tenth of the training.

For studies that need many clients a user can be cut into several, of so many consecutive utterances each. A client is then
not a user, and what is protected is a client; the name of the data set says so.
"""

import json
from importlib.util import find_spec
from pathlib import Path

from coalmine import _validate
from coalmine.data._files import broken, existing, needs
from coalmine.data.texts import FederatedTexts, TextsInMemory, texts_dataset


def read_chat(
    path: str | Path | None = None, *, per_client: int | None = None, clients_of_a_user: int | None = None
) -> FederatedTexts:
    """The utterances of all users, from the installed package or from a file of the same layout.

    With `per_client` each user becomes clients of so many consecutive utterances, at most `clients_of_a_user` of them.
    """
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
    if per_client is None:
        if clients_of_a_user is not None:
            raise ValueError("clients_of_a_user belongs to per_client, the number of utterances of a client; give both.")
        return texts_dataset("chat", TextsInMemory(texts))
    size = _validate.whole("per_client", per_client, least=1)
    most = None if clients_of_a_user is None else _validate.whole("clients_of_a_user", clients_of_a_user, least=1)
    name = f"chat, each user cut into clients of {size} utterances" + ("" if most is None else f", at most {most}")
    return texts_dataset(name, TextsInMemory(_cut(texts, size, most)))


def _cut(texts: dict[str, list[str]], size: int, most: int | None) -> dict[str, list[str]]:
    """Clients of so many consecutive texts each; the last of a user may have fewer."""
    return {
        f"{user}/{number:04d}": own[number * size : (number + 1) * size]
        for user, own in texts.items()
        for number in range(-(-len(own) // size))
        if most is None or number < most
    }


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"sender and text must be text, found {value!r:.40}")
    return value
