"""A bank is read strictly: what two readers could understand differently, or what does not fit together, is refused by name."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_bank import TEXT, write_bank

from ckptlab.course.quiz.arithmetic import number
from ckptlab.course.quiz.bank import read
from ckptlab.course.quiz.headings import headings, slug
from ckptlab.errors import UsageError


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(UsageError) as error:
        read(write_bank(tmp_path, text))
    return str(error.value)


def test_a_bank_is_what_its_file_says(tmp_path: Path) -> None:
    bank = read(write_bank(tmp_path))
    assert (bank.name, bank.title, bank.version, len(bank.sha256)) == ("02", "Shards", 3, 64)
    first, *_, last = bank.questions
    assert (first.type, len(first.variants), first.options[0].right, first.options[1].right) == ("single", 2, True, False)
    assert (last.type, last.exercise) == ("exercise", "2.1")
    mended = TEXT.replace("Four ranks hold", "Four ranks keep").replace("The work is shared.", "They share the work.")
    assert read(write_bank(tmp_path, f"{mended}# a remark\n")).sha256 == bank.sha256


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version: 3", "version: 4"),
        ("rows: 11, ranks: 4, chunk: 2", "rows: 11, ranks: 4, chunk: 6"),
        ("{id: none, text", "{id: none, right: true, text"),
        ("{relative: 0.02}", "{relative: 0.03}"),
        ("[write, sync, rename", "[sync, write, rename"),
        ('"`Shard(1)`", right: "8"', '"`Shard(1)`", right: "6"'),
        ("Replicate, Ịkọ]", "Replicate]"),
    ],
)
def test_a_bank_whose_key_changed_is_another(tmp_path: Path, old: str, new: str) -> None:
    was = read(write_bank(tmp_path)).sha256
    assert old in TEXT
    assert read(write_bank(tmp_path, TEXT.replace(old, new))).sha256 != was


FAULTS = {
    "a key twice": ("title: Shards", "title: Shards\ntitle: Others", "line 3: key 'title' stands twice"),
    "an unknown member": ("    unit: GB", "    units: GB", "question bytes-per-rank: Unevaluated properties are not allowed"),
    "an alias": ("title: Shards", "title: &a Shards", "anchors and aliases are not allowed"),
    "a tag": ("title: Shards", "title: !!python/name:os.system Shards", "tags are not allowed"),
    "a number as name": ('bank: "02"', "bank: 2", "2 is not of type 'string'"),
    "another's name": ('bank: "02"', 'bank: "03"', "calls itself '03'"),
    "two right ones": ("{id: rest, text", "{id: rest, right: true, text", "question last-rank: 2 options are right"),
    "no right one": (
        'right: true, because: "`torch.chunk` rounds the',
        'because: "`torch.chunk` rounds the',
        "0 options are right",
    ),
    "a wrong `right`": ('right: true, because: "Every', 'right: false, because: "Every', "True was expected"),
    "an id twice": ("id: replicas", "id: last-rank", "question last-rank: 2 questions have this id"),
    "an id that is no text": ("id: replicas", "id: 5", "5 is not of type 'string'"),
    "an id with a line's end": ("id: replicas", 'id: "replicas\\n"', "does not match"),
    "a section that is no text": ('read: "02#boxes"', "read: 2", "2 is not of type 'string'"),
    "an option's id twice": ("{id: quarters,", "{id: one,", "the options' ids should differ"),
    "a name in no variant": ("has {rows} rows", "has {row} rows", "{row} stands in a text and in no variant"),
    "a variant without a name": (", spread: 2.5, rest: 5}", ", rest: 5}", "every variant has the same names"),
    "a variant that is a list": ("spread: 2.5", "spread: [2.5]", "spread is a text or a number"),
    "options that say the same": ("spread: 2.5, rest: 5", "spread: 2.5, rest: 2", "variant 2: two options say the same"),
    "no such heading": ("02#boxes", "02#boxing", "lab 02 has no heading 'boxing'"),
    "another lab's heading": ("02#boxes", "04#the-power-cut", "04# is another lab"),
    "no such exercise": ('exercise: "2.1"', 'exercise: "2.9"', "there is no exercise 2.9"),
    "no such file": ("ckptlab/checkpoint/save.py", "ckptlab/checkpoint/safe.py", "there is no file ckptlab/checkpoint/safe.py"),
    "neither proof nor source": ("    source: ckptlab/checkpoint/save.py\n", "", "question steps-of-a-save"),
    "no feedback": (', because: "The work is shared."', "", "'because' is a required property"),
    "a wrong tolerance": ("{relative: 0.02}", "{relativ: 0.02}", "within: relativ: 0.02"),
    "an answer that is no number": ('answer: "{gigabytes}"', 'answer: "{gigabytes} GB"', "'10.5 GB' is no number"),
    "code as a number": ("{billions} * 4 / {ranks}", "__import__('os').getpid()", "is no number"),
    "a near answer that is right": ("{billions} * 4 / {ranks}", "{billions} * 12 / {ranks}", "is right"),
    "a near text that is right": ("{value: Partial,", "{value: replicate,", "near: 'replicate' is right"),
    "too large": ("title: Shards", f"title: {'x' * 300_000}", "at most 262,144 are read"),
    "a long text": ("Put the steps", f"Put {'x' * 4000} the steps", "more than 3000 characters"),
    "too deep": ("title: Shards", f"title: {'[' * 5000}", "no YAML that can be read"),
}


@pytest.mark.parametrize(("old", "new", "told"), FAULTS.values(), ids=list(FAULTS))
def test_a_fault_is_refused_and_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in TEXT
    text = refusal(tmp_path, TEXT.replace(old, new, 1))
    assert told in text
    assert "02.yaml" in text


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    text = TEXT.replace("02#boxes", "02#boxing").replace('exercise: "2.1"', 'exercise: "2.9"')
    assert len(refusal(tmp_path, text).splitlines()) == 2


def joined(parts: tuple[tuple[str, Fraction | None], str, tuple[str, Fraction | None]]) -> tuple[str, Fraction | None]:
    (left, one), sign, (right, other) = parts
    is_number = one is not None and other is not None and not (sign == "/" and other == 0)
    operator = {"+": Fraction.__add__, "-": Fraction.__sub__, "*": Fraction.__mul__, "/": Fraction.__truediv__}[sign]
    return f"({left} {sign} {right})", operator(one, other) if is_number else None


LEAVES = st.decimals(-99, 99, places=2).map(lambda one: (str(one), Fraction(one)))


@given(st.recursive(LEAVES, lambda part: st.tuples(part, st.sampled_from("+-*/"), part).map(joined), max_leaves=8))
def test_numbers_are_worked_out_exactly(written: tuple[str, Fraction | None]) -> None:
    text, value = written
    if value is not None:
        assert number(text) == value
    else:
        with pytest.raises(UsageError, match="is no number"):
            number(text)


@pytest.mark.parametrize(
    "text", ["2 ** 9999999", "f(1)", "a", "1 if 1 else 2", "[1]", "'1'", "1e999", "True", "1j", "", "1 +", "9" * 300]
)
def test_nothing_but_arithmetic_is_a_number(text: str) -> None:
    with pytest.raises(UsageError):
        number(text)


def test_a_heading_is_found_by_its_words() -> None:
    assert slug("What goes wrong: a placement that lies") == "what-goes-wrong-a-placement-that-lies"
    assert slug("My `.pt` resumes, and the loss differs") == "my-pt-resumes-and-the-loss-differs"
    assert headings("02")["boxes"] == "Boxes"
    assert headings("99") == {}
