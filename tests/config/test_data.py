"""Data files with the faults people's files have, and splits that never share a prompt."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rl.dataset import Example, Examples, apply_length_policy, drop_shared, load_examples, split_by_content
from spark_rl.errors import ConfigError
from spark_rl.task import list_tasks, load_task

TASK = """
[task]
name = "sums"
title = "sums"
[data]
{data}
[prompt]
template = "{{question}} ="
{prompt}
[[reward]]
name = "form"
kind = "regex"
pattern = '\\d+'
means = "format"
weight = 0.1
[[reward]]
name = "right"
kind = "exact"
means = "correct"
"""


def make_task(folder, data='train = "d.jsonl"\nheldout_size = 2', prompt=""):
    path = folder / "t.toml"
    path.write_text(TASK.format(data=data, prompt=prompt))
    return load_task(path)


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def numbered(count):
    return [{"question": f"{n} + 1", "answer": str(n + 1)} for n in range(count)]


def refused(task):
    with pytest.raises(ConfigError) as caught:
        load_examples(task)
    return str(caught.value.message) + " " + str(caught.value.hint)


def test_an_empty_file_is_named(tmp_path):
    (tmp_path / "d.jsonl").write_text("")
    assert "d.jsonl: the data file is empty" in refused(make_task(tmp_path))


def test_a_torn_last_line_is_named_with_its_number(tmp_path):
    write_rows(tmp_path / "d.jsonl", numbered(3))
    with (tmp_path / "d.jsonl").open("a") as file:
        file.write('{"question": "9 + 1", "ans')
    words = refused(make_task(tmp_path))
    assert "line 4" in words and "torn last line" in words


def test_a_missing_column_names_those_that_are_there(tmp_path):
    write_rows(tmp_path / "d.jsonl", [{"problem": "1 + 1", "answer": "2"}] * 9)
    words = refused(make_task(tmp_path))
    assert "'question'" in words and "answer, problem" in words


def test_columns_can_be_mapped(tmp_path):
    write_rows(tmp_path / "d.jsonl", [{"problem": f"{n} + 1", "answer": "2"} for n in range(20)])
    task = make_task(
        tmp_path, 'train = "d.jsonl"\nheldout_size = 2\ncolumns = { question = "problem" }', "chat = false"
    )
    assert load_examples(task).train[0].text.endswith("+ 1 =")


def test_a_byte_order_mark_is_accepted(tmp_path):
    (tmp_path / "d.jsonl").write_bytes(
        b"\xef\xbb\xbf" + "".join(json.dumps(row) + "\n" for row in numbered(20)).encode()
    )
    assert len(load_examples(make_task(tmp_path)).train) == 18


def test_a_nul_filled_tail_is_named(tmp_path):
    write_rows(tmp_path / "d.jsonl", numbered(5))
    with (tmp_path / "d.jsonl").open("a") as file:
        file.write("\0" * 40)
    assert "line 6" in refused(make_task(tmp_path))


def test_a_prompt_in_both_splits_leaves_training_and_is_counted(tmp_path):
    write_rows(tmp_path / "d.jsonl", numbered(10))
    write_rows(tmp_path / "h.jsonl", [*numbered(3), {"question": "0  +  1", "answer": "1"}])
    examples = load_examples(make_task(tmp_path, 'train = "d.jsonl"\nheldout = "h.jsonl"'))
    assert len(examples.train) == 7
    assert "3 training prompts are also held out" in examples.notes[1]
    assert "1 held-out prompts were duplicates" in examples.notes[0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"answer": "2"}', "row 21 of the data: has no 'question'"),
        ('{"question": null, "answer": "2"}', "row 21 of the data: has no 'question'"),
        ('{"question": "\\ud83d", "answer": "2"}', "line 21: holds half a character"),
        ('{"question": "x", "answer": ' + "9" * 5000 + "}", "line 21: cannot be read"),
        ('{"question": "x", "answer": ' + "[" * 100_000, "line 21: cannot be read"),
    ],
    ids=["lacks", "null", "surrogate", "digits", "brackets"],
)
def test_a_row_that_cannot_be_worded_is_named_by_its_number(tmp_path, line, words):
    write_rows(tmp_path / "d.jsonl", numbered(20))
    with (tmp_path / "d.jsonl").open("a") as file:
        file.write(line + "\n")
    assert words in refused(make_task(tmp_path))


def test_a_mapped_column_stands_above_one_that_has_our_name_already(tmp_path):
    rows = [{"gold": "2", "question": f"{n} + 1", "answer": "not this"} for n in range(20)]
    write_rows(tmp_path / "d.jsonl", rows)
    columns = 'columns = { answer = "gold", right = "gold" }'
    row = load_examples(make_task(tmp_path, f'train = "d.jsonl"\nheldout_size = 2\n{columns}')).train[0].row
    assert row["answer"] == row["right"] == "2"


def test_a_template_without_a_column_is_refused(tmp_path):
    write_rows(tmp_path / "d.jsonl", numbered(20))
    task = make_task(tmp_path)
    task.path.write_text(task.path.read_text().replace("{question}", "{ question }"))
    assert "names no column" in refused(load_task(task.path))


def test_fewer_held_out_prompts_than_asked_for_is_said(tmp_path):
    write_rows(tmp_path / "d.jsonl", numbered(20))
    notes = load_examples(make_task(tmp_path, 'train = "d.jsonl"\nheldout_size = 9')).notes
    assert notes == ("4 prompts are held out, a fifth of the data (heldout_size 9)",)


def test_a_csv_header_that_names_a_column_twice_is_refused(tmp_path):
    (tmp_path / "d.csv").write_text("question,answer, answer\n1 + 1,2,3\n")
    words = refused(make_task(tmp_path, 'train = "d.csv"'))
    assert "d.csv: line 1: names a column twice: 'answer'" in words


def test_spaces_around_the_names_of_a_csv_header_are_removed_and_said(tmp_path):
    (tmp_path / "d.csv").write_text("question , answer\n" + "".join(f"{n} + 1, {n + 1}\n" for n in range(20)))
    examples = load_examples(make_task(tmp_path, 'train = "d.csv"\nheldout_size = 2'))
    assert set(examples.train[0].row) == {"question", "answer"}
    assert examples.train[0].row["answer"].startswith(" ")  # values are left as they are
    assert "d.csv: spaces around the column names 'question', 'answer' were removed" in examples.notes


def test_held_out_prompts_beyond_heldout_size_are_counted(tmp_path):
    write_rows(tmp_path / "d.jsonl", numbered(30)[10:])
    write_rows(tmp_path / "h.jsonl", numbered(10))
    data = 'train = "d.jsonl"\nheldout = "h.jsonl"\nheldout_size = '
    examples = load_examples(make_task(tmp_path, data + "4"))
    assert len(examples.heldout) == 4
    assert examples.notes == ("of 10 held-out prompts the first 4 are used (heldout_size)",)
    assert load_examples(make_task(tmp_path, data + "10")).notes == ()


def test_a_train_size_above_the_number_of_prompts_is_said(tmp_path):
    write_rows(tmp_path / "d.jsonl", numbered(20))
    data = 'train = "d.jsonl"\nheldout_size = 4\ntrain_size = '
    assert load_examples(make_task(tmp_path, data + "16")).notes == ()
    notes = load_examples(make_task(tmp_path, data + "17")).notes
    assert notes == ("train_size is 17, but there are only 16 training prompts; all are used",)


def test_csv_is_read_and_a_short_row_named(tmp_path):
    (tmp_path / "d.csv").write_text("question,answer\n" + "".join(f"{n} + 1,{n + 1}\n" for n in range(20)))
    data = 'train = "d.csv"\nheldout_size = 2'
    assert len(load_examples(make_task(tmp_path, data)).train) == 18
    with (tmp_path / "d.csv").open("a") as file:
        file.write("only one field\n")
    assert "line 22" in refused(make_task(tmp_path, data))


def test_parquet_is_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(numbered(20)), tmp_path / "d.parquet")
    assert len(load_examples(make_task(tmp_path, 'train = "d.parquet"\nheldout_size = 2')).heldout) == 2


def test_reasoning_gym_tasks_load_by_name_and_unknown_ones_name_the_nearest(tmp_path):
    pytest.importorskip("reasoning_gym")
    task = make_task(tmp_path, 'reasoning_gym = "basic_arithmetic"\ntrain_size = 50\nheldout_size = 20')
    examples = load_examples(task)
    assert len(examples.heldout) == 20
    assert "basic_arithmetic" in refused(make_task(tmp_path, 'reasoning_gym = "basic_arithmetics"'))


def test_a_hub_id_without_a_network_says_what_to_do(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    import datasets

    def unreachable(*_args, **_kwargs):
        raise ConnectionError("Couldn't reach 'openai/gsm8k' on the Hub (offline)")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    words = refused(make_task(tmp_path, 'hub = "openai/gsm8k"\ntrain = "train"'))
    assert "cannot be loaded" in words and "save it as JSONL" in words


def test_a_data_set_that_is_a_script_says_what_to_do(tmp_path):
    pytest.importorskip("datasets")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "old.py").write_text("")
    words = refused(make_task(tmp_path, f'hub = "{tmp_path / "old"}"'))
    assert "scripts are no longer supported" in words and "save it as JSONL" in words


@pytest.mark.parametrize("path", list_tasks(), ids=lambda path: path.stem)
def test_shipped_tasks_share_no_prompt_between_splits(path):
    examples = load_examples(load_task(path))
    assert {e.text for e in examples.train} & {e.text for e in examples.heldout} == set()


@given(st.lists(st.text(alphabet="ab ", min_size=1, max_size=4), max_size=30), st.integers(1, 10))
def test_splits_never_share_a_prompt(texts, heldout_size):
    examples = [Example(text, {}) for text in texts]
    train, heldout = split_by_content(examples, heldout_size)
    train, heldout, _ = drop_shared(train, heldout)
    assert not {" ".join(e.text.split()) for e in train} & {" ".join(e.text.split()) for e in heldout}


def lengths(overlong, prompts=("ab", "abcdef")):
    examples = Examples(tuple(Example(p, {}) for p in prompts), (Example("a", {}),))
    return apply_length_policy(examples, 4, overlong, list, "".join)


def test_overlong_prompts_are_dropped_and_counted():
    assert lengths("drop").notes == ("1 training prompts over 4 tokens were dropped (longest 6)",)


def test_overlong_prompts_are_cut_from_the_front():
    assert [e.prompt for e in lengths("cut").train] == ["ab", "cdef"]


def test_overlong_prompts_are_refused_with_the_longest():
    with pytest.raises(ConfigError, match="the longest has 6 tokens"):
        lengths("refuse")


def test_a_reward_without_a_correct_part_is_refused(tmp_path):
    path = tmp_path / "t.toml"
    text = TASK.format(data='train = "d.jsonl"', prompt="").replace('means = "correct"', 'means = "other"')
    path.write_text(text)
    with pytest.raises(ConfigError, match="no part means correct"):
        load_task(path)


def test_all_faults_of_a_task_file_are_told_at_once(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(
        '[task]\nname = "t"\ntitel = "t"\n[data]\ntrian = "x"\n[prompt]\n[[reward]]\nname = "r"\nkind = "exakt"\n[rewrad]\n'
    )
    with pytest.raises(ConfigError) as caught:
        load_task(path)
    for words in ("titel", "title", "trian", "prompt.template", "did you mean 'exact'?", "rewrad"):
        assert words in caught.value.message


def test_only_a_demo_task_may_have_an_oracle(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(
        TASK.format(data='train = "d.jsonl"', prompt="").replace(
            'name = "sums"', 'name = "sums"\noracle = "sort-digits"', 1
        )
    )
    with pytest.raises(ConfigError, match="only a demo task"):
        load_task(path)
