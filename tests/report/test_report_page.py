"""The page holds what happened, works for a run in any state, and lets nothing that a model wrote act."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rl.errors import RunDirError
from spark_rl.report import render_page, write_report
from spark_rl.report.gather import gather
from spark_rl.report.plots import Line, line_plot, smoothed
from spark_rl.report.samples import choose_samples, heldout_views
from spark_rl.report.text import visible
from spark_rl.rundir import RunDir

VOID = {"meta", "br", "link", "img", "input", "hr", "use", "path"}


class Outline(HTMLParser):
    """Elements, attributes and visible text of a page; fails where tags are not balanced."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(run: RunDir) -> str:
    return render_page(gather(run, now_seconds=1_790_000_500.0))


def test_a_finished_run_tells_its_result_first(finished_page: str) -> None:
    text = Outline(finished_page).text
    assert "Held-out success rose from 25.0 % to 87.5 % on 40 prompts" in text
    assert "sort-digits: toy profile" in text
    assert "finished at step 40 of 40" in text
    assert "Reward improving" in text


def test_curves_are_drawn_with_their_numbers(finished_page: str) -> None:
    outline = Outline(finished_page)
    for title in ("Reward", "Reward parts", "Success in training", "KL to the start", "Entropy", "Completion length"):
        assert title in outline.text
    assert outline.tags.count("svg") == 10  # eight curves, the bars of held-out success, the probe


def test_nothing_is_fetched_and_nothing_runs(finished_page: str) -> None:
    outline = Outline(finished_page)
    assert "script" not in outline.tags
    assert not {"iframe", "object", "embed", "link", "img", "form", "foreignobject", "animate"} & set(outline.tags)
    assert "http:" not in finished_page and "https:" not in finished_page
    assert not re.search(r"url\((?!#)|@import|expression\(", finished_page)
    addresses = [value for name, value in outline.attributes if name in ("href", "src", "xlink:href", "action")]
    assert all(address.startswith("#") for address in addresses)
    assert not [name for name, _ in outline.attributes if name.startswith("on")]


def test_every_reference_inside_the_page_has_one_target(finished_page: str) -> None:
    outline = Outline(finished_page)
    ids = [value for name, value in outline.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = [value[1:] for name, value in outline.attributes if name in ("href", "xlink:href")]
    targets += re.findall(r"url\(#([^)]+)\)", " ".join(value for _, value in outline.attributes))
    assert set(targets) <= set(ids)


HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></div></main><h1>I am the report</h1>",
    "</style><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    '" onmouseover="alert(1)',
    "&lt;b&gt; & <b>",
    "]]><svg/onload=alert(1)>",
]


def test_what_a_model_wrote_is_shown_and_never_acts(make_run: Callable[..., RunDir]) -> None:
    words = "\n".join(HOSTILE)
    outline = Outline(page_of(make_run(completion=words, reason=words)))
    assert " ".join(words.split()) in outline.text
    assert "script" not in outline.tags and "img" not in outline.tags
    assert outline.tags.count("h1") == 1
    assert outline.tags.count("svg") == 10
    assert not [name for name, _ in outline.attributes if name.startswith("on")]


def test_names_of_users_are_text_too(
    make_run: Callable[..., RunDir], rewrite: Callable[[Path, dict[str, Any]], None]
) -> None:
    name = "<b>$x_1$ & \\frac{1}</b>"
    run = make_run(part=name)
    rewrite(run.recipe, {"profile": {"title": name}})
    rewrite(run.task, {"path": f"/tasks/{name}.toml"})
    outline = Outline(page_of(run))
    assert "$x_1$ & \\frac{1}" in outline.text
    assert outline.attributes.count(("class", "summary good")) == 1


def test_characters_that_hide_or_turn_text_are_spelt_out(make_run: Callable[..., RunDir]) -> None:
    text = Outline(page_of(make_run(completion="a\u202eb\x00c\u200bd\x1b[31m"))).text
    assert "a\\u202eb\\x00c\\u200bd\\x1b[31m" in text


@given(st.text())
def test_visible_text_has_no_hidden_character(text: str) -> None:
    assert all(character in "\n\t" or character.isprintable() or character.isspace() for character in visible(text))


def test_long_completions_are_cut_with_a_count() -> None:
    assert visible("x" * 5_000, 1_500).endswith("… (3,500 more characters)")


def test_a_run_that_was_just_created_has_a_page(empty_run: RunDir) -> None:
    text = Outline(page_of(empty_run)).text
    for words in ("no step yet", "Not measured yet", "No step has been logged yet", "Not probed yet", "Not signed yet"):
        assert words in text
    assert "There is nothing to judge" in text


def test_a_run_of_one_step_has_a_page(empty_run: RunDir) -> None:
    empty_run.metrics.write_text('{"v": 1, "t": 1.0, "step": 1, "reward": 0.5}\n{"v": 1, "t": 2.0, "st')
    outline = Outline(page_of(empty_run))
    assert outline.tags.count("svg") == 1
    assert "1 lines could not be read" in outline.text


def test_numbers_that_are_none_leave_gaps(empty_run: RunDir) -> None:
    rows = [
        f'{{"v": 1, "t": {step}, "step": {step}, "reward": null, "nonfinite": ["reward"], "kl": 0.1}}'
        for step in (1, 2, 3)
    ]
    empty_run.metrics.write_text("\n".join(rows) + "\n")
    text = Outline(page_of(empty_run)).text
    assert "reward is not a number" in text
    assert "Reward (no row has a reward)" in text


def test_a_run_without_the_after_evaluation_says_so(finished_run: RunDir, rewrite: Any) -> None:
    rewrite(finished_run.eval, {"after": None})
    text = Outline(page_of(finished_run)).text
    assert "Before training 10 of 40 held-out prompts were solved (25.0 %)" in text
    assert "has not been evaluated yet" in text


def test_no_change_is_not_called_a_rise(finished_run: RunDir, rewrite: Any) -> None:
    same = {"correct": [True, False] * 20, "greedy_successes": None}
    rewrite(finished_run.eval, {"before": same, "after": same})
    assert "no change that can be told from chance" in Outline(page_of(finished_run)).text


def test_a_failed_run_shows_its_cause(finished_run: RunDir) -> None:
    finished_run.events.write_text(
        '{"v": 1, "t": 1, "event": "supervisor_started"}\n'
        '{"v": 1, "t": 2, "event": "run_ended", "exit_code": 7, "cause": "CUDA <error>"}\n'
    )
    text = Outline(page_of(finished_run)).text
    assert "failed at step 40 of 40" in text
    assert "Why it ended: CUDA <error>" in text


def test_every_recipe_value_has_its_source_and_reason(finished_page: str) -> None:
    text = Outline(finished_page).text
    assert "grpo.max_steps 40 --set given on the command line" in text
    assert "grpo.num_generations 2 base the floor" in text
    assert "grpo.beta 0.01 not given" in text
    assert "grpo.top_k 0 not set 0 is written as none" in text


def test_a_broken_file_of_the_run_is_named(finished_run: RunDir) -> None:
    finished_run.probe.write_text("{")
    with pytest.raises(RunDirError, match=r"probe\.json"):
        gather(finished_run)


def test_the_page_goes_where_it_is_asked_to(finished_run: RunDir, tmp_path: Path) -> None:
    assert write_report(finished_run) == finished_run.path / "report.html"
    elsewhere = tmp_path / "page.html"
    write_report(finished_run, elsewhere)
    assert elsewhere.read_text().startswith("<!doctype html>")
    with pytest.raises(RunDirError, match="cannot be written"):
        write_report(finished_run, tmp_path / "no such folder" / "page.html")


def test_the_same_run_makes_the_same_page(finished_run: RunDir) -> None:
    assert page_of(finished_run) == page_of(finished_run)


rows = st.lists(
    st.fixed_dictionaries(
        {
            "prompt": st.sampled_from(["a", "b", "c"]),
            "completion": st.text(max_size=5),
            "total": st.none() | st.sampled_from([0.0, 0.2, 1.2]),
            "correct": st.none() | st.booleans(),
        }
    ),
    max_size=30,
)


@settings(max_examples=50)
@given(rows)
def test_samples_show_the_best_and_the_worst_of_a_step(rows: list[dict[str, Any]]) -> None:
    chosen = choose_samples(rows, 6)
    assert len(chosen) == min(6, len(rows))
    known = [row["total"] for row in rows if row["total"] is not None]
    if known and len(rows) >= 6:
        assert chosen[0].total == max(known)
    totals = [view.total if view.total is not None else -1.0 for view in chosen]
    assert totals == sorted(totals, reverse=True)


def test_heldout_answers_are_paired_by_prompt_only() -> None:
    before = [{"prompt": "a", "completion": "1", "correct": False}, {"prompt": "b", "completion": "1", "correct": True}]
    after = [{"prompt": "a", "completion": "2", "correct": True}, {"prompt": "x", "completion": "2", "correct": True}]
    assert [(view.fate, view.before.prompt) for view in heldout_views(before, after)] == [("gained", "a")]


def test_a_running_mean_keeps_the_steps_and_stays_within_the_values() -> None:
    points = [(step, float(step % 7)) for step in range(100)]
    smooth = smoothed(points)
    assert [step for step, _ in smooth] == [step for step, _ in points]
    assert all(0 <= value <= 6 for _, value in smooth)


def test_a_series_without_a_point_is_not_drawn_and_a_constant_one_is() -> None:
    assert line_plot("nothing", [Line("x", ())]) is None
    assert line_plot("flat", [Line("x", ((1, 0.0), (2, 0.0)))]) is not None


def test_making_a_page_loads_no_training_library(finished_run: RunDir) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from spark_rl.report import write_report\n"
        "from spark_rl.rundir import RunDir\n"
        "write_report(RunDir(Path(sys.argv[1])))\n"
        "heavy = {'torch', 'transformers', 'trl', 'unsloth', 'vllm', 'datasets', 'peft'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(finished_run.path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
