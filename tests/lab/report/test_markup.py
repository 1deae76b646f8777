"""Tables and commands of the page: no empty column, long texts wrap."""

from __future__ import annotations

from grokfast.lab.report.page.markup import commands, table


def test_a_column_without_any_value_is_left_out() -> None:
    text = table([["run", "paper", "steps"], ["a", "", "1"], ["b", "-", "-"]])
    assert "paper" not in text
    assert text.count("<td") == 2
    assert "<td><span class=soft>&ndash;</span></td>" in text


def test_marks_are_by_the_column_as_it_was_given() -> None:
    text = table([["run", "paper", "steps"], ["a", "", "1"]], mark=lambda column, text: column == 2)
    assert "<td><mark>1</mark></td>" in text


def test_long_cells_wrap_with_the_head_of_their_column() -> None:
    text = table([["arm", "setting"], ["adamw", "learning rate 0.001, " * 3], ["sgd", "none"]])
    assert text.count("class=long") == 3


def test_commands_are_escaped_and_break_between_flags() -> None:
    text = commands(["grokfast train modmul --lr 0.1 --task a<b"])
    assert "<code><span>grokfast train modmul</span> <span>--lr 0.1</span> <span>--task a&lt;b</span></code>" in text
