"""Sentences from templates: numbers, money, dates, times, names, lists, questions, single words.

They give the voice what books lack: digits as people write them, orders and appointments, one to
three words alone, and every word of the lexicon at least in a list.
"""

import random
from collections.abc import Callable


def _list(text: str) -> list[str]:
    return text.split()


FIRST = _list("""
    Anna Ben Carla David Elena Frank Grace Henry Irene Jack Karen Liam Maria Noah Olivia
    Peter Quinn Rachel Samuel Tina Ursula Victor Wendy Xavier Yusuf Zoe Ahmed Priya Wei
    Fatima Diego Ingrid Kofi Leila Mateo Nadia Oscar Pablo Rosa Stefan Thomas Uma Vera
    William Aaron Bella Charlotte Daniel
""")
LAST = _list("""
    Smith Johnson Nguyen Garcia Patel Kim Cohen Murphy Rossi Schmidt Andersson Kowalski
    Okafor Tanaka Silva Martin Fischer Lopez Novak Petrov Hughes Bennett Carter Dixon Ellis
    Foster Graham Harris Ivanov Jensen Keller Lambert Mitchell Norton Olsen Parker Reynolds
    Sullivan Turner Walker Young
""")
PLACES = _list("""
    Boston Chicago Denver Seattle Toronto London Paris Berlin Madrid Rome Vienna Tokyo
    Beijing Delhi Cairo Lagos Sydney Lima Oslo Dublin Lisbon Prague Warsaw Athens Houston
    Atlanta Phoenix Nashville Portland Montreal Geneva Brussels Helsinki Nairobi Singapore
    Bangkok Manila Vancouver Cleveland
""")
THINGS = _list("""
    apples bread butter candles chairs clocks coffee cups eggs envelopes flowers forks
    gloves hammers jackets keys lamps lemons maps mirrors nails onions oranges pencils
    plates potatoes rice ribbons rope salt screws shoes soap spoons stamps sugar tables tea
    tickets tomatoes towels umbrellas
""")
MONTHS = _list("""
    January February March April May June July August September October November December
""")
DAYS = _list("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
CARRIERS = "ABCDEFGHJKLMNPRSTUVW"
SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
UNITS = [
    "kilometers",
    "miles",
    "pounds",
    "kilograms",
    "degrees",
    "percent",
    "inches",
    "feet",
    "minutes",
    "hours",
    "days",
    "weeks",
    "months",
    "years",
    "gallons",
    "liters",
    "pages",
    "people",
    "km",
    "kg",
]
SHORT = _list("""
    Yes. No. Maybe. Hello. Goodbye. Thanks. Please. Sorry. Okay. Right. Really? Why? When?
    Where? Who? How? What? Stop! Go! Wait! Look! Listen! Never. Always. Today. Tomorrow.
    Tonight. Soon. Later. Exactly. Certainly. Absolutely. Nothing. Everything. Welcome.
    Enough. Good. Great. Fine.
""")
PHRASES = [
    "thank you",
    "of course",
    "not at all",
    "good morning",
    "good night",
    "see you soon",
    "come in",
    "no problem",
    "I see",
    "very well",
    "all right",
    "not yet",
    "right now",
    "excuse me",
    "my pleasure",
    "well done",
    "good luck",
    "after you",
    "never mind",
    "one moment",
    "that's fine",
    "I agree",
]
WHO = [
    "the manager",
    "my sister",
    "the driver",
    "our neighbor",
    "the nurse",
    "your lawyer",
    "the pilot",
    "the student",
    "their uncle",
    "the mayor",
    "her boss",
    "the plumber",
    "a friend",
    "the clerk",
]
DID = [
    "called",
    "arrived",
    "left",
    "finished",
    "answered",
    "moved",
    "started",
    "agreed",
    "apologized",
    "returned",
    "complained",
    "waited",
    "paid",
    "resigned",
    "slept",
    "voted",
    "won",
    "laughed",
]
ASK = ["Did", "Why did", "When did", "How did", "Where did", "Do you know if", "Are you sure that"]


def number(r: random.Random) -> str:
    kind = r.randrange(7)
    if kind == 0:
        return str(r.randint(0, 20))
    if kind == 1:
        return str(r.randint(21, 999))
    if kind == 2:
        return f"{r.randint(1000, 999_999):,}"
    if kind == 3:
        return f"{r.randint(0, 99)}.{r.randint(0, 99)}"
    if kind == 4:
        return f"{r.randint(1, 900)} {r.choice(['thousand', 'million', 'billion'])}"
    if kind == 5:
        return f"{r.randint(2, 19) * 100}"
    return f"{r.randint(1, 31)}" + r.choice(["", "", "0", "00"])


def money(r: random.Random) -> str:
    whole = r.choice([r.randint(1, 99), r.randint(100, 9999), r.randint(1, 20) * 1000])
    cents = r.choice(["", "", f".{r.randint(1, 99):02d}"])
    return r.choice(["$", "$", "$", "£", "€"]) + f"{whole:,}{cents}"


def date(r: random.Random) -> str:
    day, month, year = r.randint(1, 28), r.choice(MONTHS), r.randint(1700, 2060)
    suffix = "th" if 10 <= day <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return r.choice(
        [
            f"{month} {day}{suffix}",
            f"{month} {day}, {year}",
            f"{day} {month} {year}",
            str(year),
            f"{r.choice(DAYS)}, {month} {day}{suffix}",
            f"{month} {year}",
        ]
    )


def clock(r: random.Random) -> str:
    hour, minute = r.randint(1, 12), r.choice([0, 5, 10, 15, 20, 30, 40, 45, 50, r.randint(1, 59)])
    return f"{hour}:{minute:02d}" + r.choice(["", " am", " pm", " p.m.", " a.m."])


def name(r: random.Random) -> str:
    title = r.choice(["", "", "", "Mr. ", "Mrs. ", "Dr. ", "Professor ", "Captain "])
    return r.choice(
        [
            r.choice(FIRST),
            f"{title}{r.choice(LAST)}" if title else r.choice(FIRST),
            f"{r.choice(FIRST)} {r.choice(LAST)}",
        ]
    )


def listing(items: list[str], r: random.Random) -> str:
    return ", ".join(items[:-1]) + r.choice([", and ", ", and ", " and ", ", or "]) + items[-1]


def sentence(r: random.Random) -> str:
    """One sentence with a number, an amount, a date, a time or a name in it."""
    templates: list[Callable[[], str]] = [
        lambda: f"The total is {money(r)}, due on {date(r)}.",
        lambda: f"We need {number(r)} {r.choice(UNITS)} by {clock(r)}.",
        lambda: f"{name(r)} was born on {date(r)} in {r.choice(PLACES)}.",
        lambda: (
            f"The train to {r.choice(PLACES)} leaves at {clock(r)}"
            f" from platform {r.randint(1, 30)}."
        ),
        lambda: f"It costs {money(r)} for {number(r)} {r.choice(THINGS)}.",
        lambda: f"Please call {name(r)} at {clock(r)} on {r.choice(DAYS)}.",
        lambda: (
            f"My number is {r.randint(200, 999)}-{r.randint(200, 999)}-{r.randint(1000, 9999)}."
        ),
        lambda: f"Buy {listing(r.sample(THINGS, r.randint(2, 6)), r)}.",
        lambda: (
            f"{listing([name(r) for _ in range(r.randint(2, 5))], r)}"
            f" {r.choice(DID)} {r.choice(DAYS)}."
        ),
        lambda: (
            f"{r.choice(ASK)} {r.choice(WHO)} {r.choice(['call', 'leave', 'agree', 'wait'])}"
            f" {r.choice(['today', 'at ' + clock(r), 'on ' + date(r), 'in ' + r.choice(PLACES)])}?"
        ),
        lambda: f"Is it {number(r)} or {number(r)} {r.choice(UNITS)}?",
        lambda: (
            f"{r.choice(WHO).capitalize()} {r.choice(DID)} at {clock(r)},"
            f" and {name(r)} {r.choice(DID)} too."
        ),
        lambda: f"Chapter {r.randint(1, 40)}, page {r.randint(1, 900)}.",
        lambda: f"Version {r.randint(1, 20)}.{r.randint(0, 12)} grew by {number(r)}% in {date(r)}.",
        lambda: (
            f"Flight {r.choice(CARRIERS)}{r.choice(CARRIERS)} {r.randint(10, 999)}"
            f" from {r.choice(PLACES)} to {r.choice(PLACES)}"
            f" is delayed by {r.randint(5, 90)} minutes."
        ),
        lambda: f"Who told {name(r)} about {r.choice(WHO)} in {r.choice(PLACES)}?",
        lambda: f"Yes, {r.choice(WHO)} {r.choice(DID)}, but {name(r)} did not.",
        lambda: (
            f"Between {r.randint(1800, 1950)} and {r.randint(1951, 2030)},"
            f" {r.choice(PLACES)} grew to {number(r)} people."
        ),
        lambda: f"The code is {' '.join(r.choice(SIGNS) for _ in range(r.randint(3, 6)))}.",
        lambda: (
            f"{name(r)} lives at {r.randint(1, 9999)} {r.choice(LAST)} Street, {r.choice(PLACES)}."
        ),
    ]
    return r.choice(templates)()


def generated(count: int, lexicon: list[str], r: random.Random) -> list[str]:
    """`count` sentences; a third are words of the lexicon alone or in lists, a tenth very short."""
    out = [*SHORT, *(p[0].upper() + p[1:] + end for p in PHRASES for end in ".!")]
    order = r.sample(lexicon, len(lexicon))
    at = 0
    while len(out) < count:
        kind = r.random()
        if kind < 0.33:
            size = r.choice([1, 2, 3, 4, 6, 8])
            items = [order[(at + i) % len(order)] for i in range(size)]
            at += size
            text = items[0] if size == 1 else " ".join(items) if size <= 3 else listing(items, r)
            out.append(text[0].upper() + text[1:] + r.choice("...?!"))
        elif kind < 0.38:
            out.append(
                r.choice([number(r), money(r), date(r), clock(r), name(r), r.choice(PLACES)])
                + r.choice("..?")
            )
        elif kind < 0.42:
            phrase = f"{r.choice(PHRASES)}, {r.choice([name(r), r.choice(PHRASES)])}"
            out.append(phrase[0].upper() + phrase[1:] + r.choice(".!?"))
        else:
            out.append(sentence(r))
    return out
