"""Text in words and in the few marks that mini was taught."""

import re

from voxserve.text.normalise import in_words

_JSON = re.compile(r"(?<![\w.])JSON(?!\w)")
"""A name that is said as a word."""


def normalise(text: str) -> str:
    """The text in words, with . , ; : ! ? — … as the only marks left."""
    text = re.sub("[‘’]", "'", re.sub('["“”]', " ", text))
    text = re.sub(r"\s+", " ", text).strip()
    text = _JSON.sub("Jason", in_words(text))
    text = re.sub(r"\.\.+", "…", text)
    text = re.sub(r"[!?]*\?[!?]*", "?", re.sub(r"!+", "!", text))
    text = re.sub(r"\s*[()\[\]{}]\s*", ", ", text)
    text = re.sub(r"\s(?:--|[-–—])+\s|--+|—|(?<=\w)–(?=\s)", " — ", text)
    text = re.sub(r"[–_*`|\\]", " ", text)
    text = re.sub(r"\s+([.,;:!?…])", r"\1", text)
    text = re.sub(r"([,;:])[,;:]*(?=[.!?…,;:])|^[,;: ]+", "", text)
    return re.sub(r"\s+", " ", text).strip()
