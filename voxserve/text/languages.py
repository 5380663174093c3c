"""Names of languages, as models have them and as clients give them."""

_CODES = {
    "en": "english",
    "de": "german",
    "es": "spanish",
    "zh": "chinese",
    "ja": "japanese",
    "fr": "french",
    "ko": "korean",
    "ru": "russian",
    "it": "italian",
    "pt": "portuguese",
}


def language_name(wanted: str) -> str:
    """The English name, in small letters, of a language given by that name or as a BCP-47 tag.

    What is unknown comes back as it is, in small letters.
    """
    lower = wanted.casefold()
    return _CODES.get(lower.replace("_", "-").split("-")[0], lower)
