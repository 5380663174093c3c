"""Words whose full stop does not end a sentence, in lower case and without the last stop."""

_NAMES = """
mr mrs ms mx dr drs prof st sr sra srta jr rev hon gen col capt cpt cmdr lt sgt maj adm gov pres
sen rep mt ft messrs mme mlle hr fr dipl ing vs cf al approx ca bzw bspw ggf evtl usw resp inkl
exkl vgl sog viz incl excl esp dept univ est bros tel ext
"""
_NUMBERED = """
no nos nr nrs num núm n° fig figs vol vols pp pg ch sec art abs eq ver bd op bk para
jan feb mar apr jun jul aug sep sept oct nov dec
"""

BEFORE_A_NAME = frozenset(_NAMES.split())
"""Titles, and abbreviations that something always follows."""

BEFORE_A_NUMBER = frozenset(_NUMBERED.split())
"""Their stop ends a sentence unless a digit follows: "no. 5", but "I said no. He left"."""

MAY_END_A_SENTENCE = frozenset({"a.m", "p.m"})
"""A capital letter behind these begins a sentence, unlike behind "U.S." or "e.g."."""
