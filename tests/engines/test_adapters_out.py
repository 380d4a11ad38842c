"""What leaves a LoRA run holds its adapter exactly once: merged, as a PEFT adapter, and as a LoRA request of vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_rl.errors import ConfigError, TrainingFailed
from spark_rl.models import resolve_model
from spark_rl.recipe import Recipe, resolve
from spark_rl.rundir import RunDir

pytestmark = [pytest.mark.train]

DRIVER = Path(__file__).with_name("drive_lora_request.py")
PROMPTS = ["sort 50391=", "sort 71204=", "sort 96385="]


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return resolve("cpu-tiny", sets=["engine.name=plain", "tuning.method=lora", "lora.r=16", "lora.lora_alpha=16"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, recipe: Recipe) -> RunDir:
    """A finished run whose adapter is plainly not zero."""
    torch = pytest.importorskip("torch")
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(resolve_model("embedded"))
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = LoraConfig(r=16, lora_alpha=16, target_modules=list(recipe.lora.target_modules), task_type="CAUSAL_LM")
    model = get_peft_model(base, config)
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    made = RunDir(tmp_path_factory.mktemp("run"))
    model.save_pretrained(made.model)
    AutoTokenizer.from_pretrained(folder).save_pretrained(made.model)
    return made


def logprobs(source: Path | str, adapter: Path | None = None) -> list[Any]:
    """Per prompt, by plain Transformers and PEFT."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(resolve_model("embedded"))
    model = AutoModelForCausalLM.from_pretrained(str(source), dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter)
    model.eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        return [torch.log_softmax(model(**tokenizer(prompt, return_tensors="pt")).logits, -1) for prompt in PROMPTS]


def distance(one: list[Any], other: list[Any]) -> float:
    return max((left - right).abs().mean().item() for left, right in zip(one, other, strict=True))


def test_merged_weights_answer_as_base_and_adapter_do(run: RunDir, recipe: Recipe, tmp_path: Path) -> None:
    from spark_rl.export import export

    done = export(run, recipe, tmp_path / "merged", PROMPTS)
    merged = logprobs(tmp_path / "merged")
    base = str(resolve_model("embedded"))
    assert done.kind == "merged" and distance(merged, logprobs(base, run.model)) < 1e-5
    assert distance(merged, logprobs(base)) > 0.05, "the adapter does something"


def test_an_adapter_merged_twice_is_not_called_exported(
    run: RunDir, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft.tuners.lora.layer import Linear

    from spark_rl.export import export

    merge = Linear.merge

    def twice(self: Any, *args: Any, **kwargs: Any) -> None:
        added = self.get_delta_weight("default")
        merge(self, *args, **kwargs)
        self.get_base_layer().weight.data += added

    monkeypatch.setattr(Linear, "merge", twice)
    with pytest.raises(TrainingFailed, match="differs from the trained one"):
        export(run, recipe, tmp_path / "merged", PROMPTS)


def test_an_adapter_that_was_not_merged_is_not_called_exported(
    run: RunDir, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft.tuners.lora.layer import Linear

    from spark_rl.export import export

    monkeypatch.setattr(Linear, "merge", lambda self, *args, **kwargs: None)
    with pytest.raises(TrainingFailed, match="differs from the trained one"):
        export(run, recipe, tmp_path / "merged", PROMPTS)


def test_an_exported_adapter_loads_in_plain_peft(run: RunDir, recipe: Recipe, tmp_path: Path) -> None:
    from spark_rl.export import export

    export(run, recipe, tmp_path / "adapter", PROMPTS, as_adapter=True)
    base = str(resolve_model("embedded"))
    assert distance(logprobs(base, tmp_path / "adapter"), logprobs(base, run.model)) == 0.0


def test_an_adapter_of_a_four_bit_base_is_merged_into_16_bits_with_words(run: RunDir, tmp_path: Path) -> None:
    from spark_rl.export import export

    quantised = resolve("cpu-tiny", sets=["tuning.method=qlora", "model.quantization=bnb-4bit"])
    done = export(run, quantised, tmp_path / "merged", PROMPTS)
    assert done.note is not None and "bnb-4bit" in done.note and "16-bit" in done.note


def test_a_taken_folder_is_refused(run: RunDir, recipe: Recipe, tmp_path: Path) -> None:
    from spark_rl.export import export

    (tmp_path / "file").touch()
    with pytest.raises(ConfigError):
        export(run, recipe, tmp_path, PROMPTS)


@pytest.mark.vllm
@pytest.mark.slow
def test_the_adapter_serves_as_a_lora_request_of_vllm(run: RunDir, tmp_path: Path) -> None:
    """Starts a CPU engine: most of a minute."""
    pytest.importorskip("vllm")
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = str(resolve_model("embedded"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    (tmp_path / "tokens.json").write_text(json.dumps(prompts))
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, str(DRIVER), folder, str(run.model), str(tmp_path / "tokens.json"), str(out)],
        capture_output=True,
        text=True,
        env={
            "OMP_WAIT_POLICY": "PASSIVE",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            **os.environ,
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    served = json.loads(out.read_text())

    for name, adapter in (("adapter", run.model), ("base", None)):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        model = PeftModel.from_pretrained(model, adapter) if adapter else model
        for prompt, (completion, logprobs_served) in zip(prompts, served[name], strict=True):
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([[*prompt, *completion]])).logits[0]
            steps = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
            expected = [steps[index, token].item() for index, token in enumerate(completion)]
            assert logprobs_served == pytest.approx(expected, abs=0.01), name
    assert served["adapter"] != served["base"]


def test_the_adapter_is_merged_into_the_revision_that_it_was_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    import peft

    from spark_rl import export

    asked: list[str | None] = []

    class Model:
        @classmethod
        def from_pretrained(cls, source: Any, *_: Any, revision: str | None = None, **__: Any) -> Model:
            asked.append(revision)
            return cls()

        def eval(self) -> Model:
            return self

    monkeypatch.setattr(export, "AutoModelForCausalLM", Model)
    monkeypatch.setattr(peft, "PeftModel", Model)
    export._with_adapter(resolve("cpu-tiny", sets=["model.revision=v2"]), Path("adapter"))
    assert asked[0] == "v2"
