"""Words that the reading of words looks up."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SPELT = _words("US IT AM PM ID TV PR HR OS")
"""Capitals that are letters although the lexicon has a word of that spelling."""
DETERMINERS = _words(
    "the a an this that these those my your his her its our their no any some every each of what "
    "which whose one two three first second third last next new old another"
)
BEFORE_VERBS = _words(
    "to will would can could should shall may might must don't doesn't didn't won't can't cannot "
    "couldn't wouldn't shouldn't i you we they who let's please not never always often i'll you'll "
    "we'll they'll i'd you'd we'd they'd did do does"
)
BEFORE_PAST = _words(
    "have has had was were been be is are he she it i've you've we've they've having got"
)
