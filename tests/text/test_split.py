import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxserve.text.split import MAX_UNIT_CHARS, Granularity, Splitter, forced_cut

# What decides about a boundary, beside plain letters.
TRICKY = st.text(alphabet="aB1. ,!?…\n\"')(。！、」ก ะ।؟", max_size=60) | st.lists(
    st.sampled_from(
        ["Dr.", "U.S.", "3.50", "1,000", "e.g.", "J.", "...", " ", ". ", "? ", "No", "he", "你好",
         "。", "“", "”", "(", ")", "\n", "a.com/?q=1", "p.m.", "1.", "สวัสดี", "👩\u200d🚀"]
    ),
    max_size=20,
).map("".join)  # fmt: skip


def split(text: str, granularity: Granularity = "sentence", max_chars: int = 400) -> list[str]:
    splitter = Splitter(granularity, granularity, max_chars)
    return splitter.feed(text) + splitter.end()


@pytest.mark.parametrize(
    "marked",
    [
        "Hello there.| How are you?| Fine!",
        "Dr. Smith paid $3.50.| He left.",
        "Use tools, e.g. a saw, i.e. the sharp one.| Then stop.",
        "The U.S. Government spent 1,000.50 dollars.| Good.",
        "J. R. R. Tolkien wrote it.| So did I.| Really.",
        "Wait... what?| No...| Never.",
        "Well… maybe.| Or not…| Yes.",
        'He said "Stop!" and left.| "Go."| She went.',
        "“Is it late?” she asked.| “No.”| He sat down.",
        "(See p. 3. It helps.)| Then go.",
        "See http://a.com/x?y=1.2.| Or www.b.org, v. 2.1!| Bye.",
        "At 5 p.m. it rains.| He slept until 6 a.m.| The bus came.",
        "1. Wash it.| 2. Dry it.",
        "No. 5 is alive.| I said no.| He left.",
        "What?!| Really?!?| Yes!!!| Fine.",
        "One\n\n|Two\nthree",
        "z. B. das Haus, usw. und so.| Gut.",
        "It costs 3 bucks :( but ok.| Next.",
        "hi there!| how are you?| fine",
        "你好。|世界！|很好？！|“对。”他说。|完",
        "「今日は。」と言った。|次です。|終わり",
        "价格是3.50元。|共1,000个．|好",
        "नमस्ते। |आप कैसे हैं? |ठीक।",
        "كيف حالك؟ |بخير، شكرا. |مرحبا",
        "آپ کیسے ہیں؟ |میں ٹھیک ہوں۔ |جی",
        "Բարեւ։ test.| Next",
        "— Hello.| 😀 Bye.",
        "",
        "no end",
    ],
)
def test_sentences(marked: str) -> None:
    """Bars stand for boundaries; the space behind a boundary belongs to the unit before it."""
    wanted = [unit for unit in marked.split("|") if unit]
    text = "".join(wanted)
    assert [unit.strip() for unit in split(text)] == [unit.strip() for unit in wanted]


@pytest.mark.parametrize(
    "marked",
    [
        "Sure, I can help with that,| but first of all,| tell me: what is wrong?",
        "It was 1,000,000 or so in the end;| then it fell.",
        "Meet me at 10:30 near the station,| please.",
        "Roses are really red\n|Violets are blue",
        "Some people (friends, really, and others) came,| then left.",
        "今天天气很好，|我们去公园玩，|好吗？|好",
        "كان الطقس جميلا جدا اليوم، |وذهبنا.",
        "Short, yes.| Very.",
        "Ok.| Dr. No, the very best of all,| came.",
    ],
)
def test_clauses(marked: str) -> None:
    text = "".join(marked.split("|"))
    wanted = [unit.strip() for unit in marked.split("|")]
    assert [unit.strip() for unit in split(text, "clause")] == wanted


def test_first_unit_may_be_shorter_than_the_rest() -> None:
    splitter = Splitter("clause", "sentence")
    text = "Well, as I was saying, it rains. But later on, as always, the sun comes. "
    assert splitter.feed(text) + splitter.end() == [
        "Well, as I was saying, ",
        "it rains. ",
        "But later on, as always, the sun comes. ",
    ]


def test_thai_is_cut_at_spaces_by_length() -> None:
    text = "สวัสดีครับ ผมชื่อสมชาย วันนี้อากาศดีมาก และผมจะไปตลาดกับเพื่อน แล้วกลับบ้าน"
    assert len(split(text)) == 2 and len(split(text, "clause")) > 2


def test_a_unit_is_out_with_the_character_that_makes_it_certain() -> None:
    splitter = Splitter()
    assert splitter.feed("Hello there.") == [] == splitter.feed(" ")
    assert splitter.feed("H") == ["Hello there. "]
    assert splitter.held == "H"
    assert splitter.feed("i。") == []
    assert splitter.feed("你") == ["Hi。"]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("One two. Three, four five", "One two."),
        ("One two three, four five", "One two three,"),
        ("One two three four five", "One two three four"),
        ("abcdef", "abcde"),
        ("一二三，四五六七", "一二三，"),
        ("abcde\u0301", "abcd"),
    ],
)
def test_forced_cut(text: str, cut: str) -> None:
    assert text[: forced_cut(text)] == cut


@pytest.mark.parametrize("text", ["a" * 1000, "word " * 300, "一" * 900, "(" * 900, ". " * 500])
def test_no_unit_is_too_long(text: str) -> None:
    assert max(map(len, split(text))) <= MAX_UNIT_CHARS


@given(text=TRICKY, granularity=st.sampled_from(["sentence", "clause"]), data=st.data())
def test_cuts_never_matter(text: str, granularity: Granularity, data: st.DataObject) -> None:
    most = data.draw(st.sampled_from([8, 30, 400]))
    whole = split(text, granularity, most)
    assert "".join(whole) == text
    splitter = Splitter(granularity, granularity, most)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    units = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        units += splitter.feed(text[start:end])
    assert units + splitter.end() == whole


@given(text=TRICKY)
def test_one_character_at_a_time(text: str) -> None:
    splitter = Splitter("clause", "sentence", 40)
    units = [unit for character in text for unit in splitter.feed(character)] + splitter.end()
    whole = Splitter("clause", "sentence", 40)
    assert units == whole.feed(text) + whole.end()
