"""`make texts` finds texts of every kind, and its report names what is hard to read."""

from tests.structure.user_texts import Text, report, sentences, texts

KINDS = {
    *("document", "help", "message", "error", "log"),
    *("upstream", "page", "chart", "manifest", "dashboard", "alert", "field", "metric", "answer"),
}


def test_texts_of_every_kind_are_found_with_their_places() -> None:
    found = [*texts()]
    assert {each.kind for each in found} == KINDS
    assert all(each.place and each.text.strip() for each in found)


def test_a_long_sentence_and_an_odd_word_are_reported_with_their_place() -> None:
    long = " ".join(["word"] * 36)
    lines = [*report([Text("help", "here", f"{long}. It is made anew.")])]
    assert lines[0].startswith("here: 36 words: word")
    assert lines[1].startswith('here: "anew": ')
    assert any(line.split()[:5] == ["help", "1", "2", "1", "1"] for line in lines)


def test_sentences_end_at_full_stops_and_not_inside_names() -> None:
    assert [*sentences("It is 1.5 s. Then `stellwerk run` ends: Nothing waits.")] == [
        "It is 1.5 s.",
        "Then `stellwerk run` ends:",
        "Nothing waits.",
    ]
