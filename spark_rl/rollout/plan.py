"""Which rollout route a recipe gets on a machine, or why it gets none and what to do instead.

In: (engine, rollout, tuning, quantization, machine), then the settings that depend on them. Out: a `Plan` (route, environment,
engine arguments, notes) or refusals, each with its reason and two ways out. The table in the README is printed from here
(`routes_table`), `fit` and `launch` ask here. Pure: imports no library that trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from spark_rl.errors import Refused
from spark_rl.host import Machine, MachineKind
from spark_rl.recipe import Recipe
from spark_rl.rollout.levers import Note, environment, lever_notes, llm_arguments

Tuning = Literal["full", "lora", "qlora"]
RouteName = Literal["shared", "colocate", "native", "server", "scripted"]


@dataclass(frozen=True)
class Route:
    name: RouteName
    weight_copies: str
    words: str
    """Why this one, for the first screen of a run."""


@dataclass(frozen=True)
class Refusal:
    """A combination that cannot work, or not as it reads."""

    key: str
    """The recipe key that carries it."""
    reason: str
    ways_out: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}. Either {self.ways_out[0]}; or {self.ways_out[1]}"


@dataclass(frozen=True)
class Setup:
    """What the choice of a route depends on."""

    engine: str
    rollout: str
    tuning: Tuning
    quantization: str
    machine: MachineKind
    is_gb10: bool = False


@dataclass(frozen=True)
class Plan:
    """How a run gets its completions, decided before anything heavy is imported."""

    route: Route
    environment: Mapping[str, str]
    """Set in the worker before the first heavy import."""
    llm_arguments: Mapping[str, Any]
    """For the vLLM engine that TRL builds, beyond what GRPOConfig can say."""
    notes: tuple[Note, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return {
            "route": self.route.name,
            "reason": self.route.words,
            "environment": dict(self.environment),
            "llm_arguments": dict(self.llm_arguments),
            "notes": [note.text for note in self.notes],
        }


SHARED = Route("shared", "1", "Unsloth's own vLLM reads the trainer's weights: one copy")
COLOCATE = Route("colocate", "2 awake, 1 asleep", "TRL's colocated vLLM; weights are pushed after every step")
CPU_COLOCATE = Route("colocate", "2", "TRL's colocated vLLM in its CPU build; it cannot sleep")
NATIVE = Route("native", "1", "the trainer samples with its own weights")
SERVER = Route("server", "2", "`vllm serve` in another process; weights travel over NCCL")
SCRIPTED = Route("scripted", "0", "the fake engine has no model")


def setup_of(recipe: Recipe, machine: Machine) -> Setup:
    return Setup(
        recipe.engine.name,
        recipe.rollout.kind,
        recipe.tuning.method,
        recipe.model.quantization,
        machine.kind,
        "GB10" in (machine.gpu_name or ""),
    )


def choose_route(setup: Setup) -> Route | Refusal:
    """The route of a combination, or its refusal."""
    if setup.engine == "fake":
        return SCRIPTED
    refusal = _refuse_quantization(setup)
    if refusal:
        return refusal
    if setup.rollout == "native":
        return NATIVE
    if setup.rollout == "unsloth_vllm":
        return _refuse_shared(setup) or SHARED
    if setup.rollout == "vllm_server":
        return _refuse_server(setup) or SERVER
    return _refuse_colocate(setup) or (CPU_COLOCATE if setup.machine == "cpu" else COLOCATE)


def _refuse_quantization(setup: Setup) -> Refusal | None:
    quantization = setup.quantization
    if setup.tuning == "full" and quantization != "none":
        return Refusal(
            "model.quantization",
            "full fine-tuning cannot train quantised weights",
            ('set model.quantization = "none"', 'set tuning.method = "qlora"'),
        )
    if setup.tuning == "qlora" and quantization != "bnb-4bit":
        return Refusal(
            "tuning.method",
            "QLoRA is LoRA on a 4-bit base, and this base is not",
            ('set model.quantization = "bnb-4bit"', 'set tuning.method = "lora"'),
        )
    if setup.engine == "plain" and quantization in ("bnb-8bit", "fp8"):
        return Refusal(
            "model.quantization",
            f"the plain engine loads 16-bit and bnb-4bit bases, not {quantization}",
            ('set engine.name = "unsloth"', 'set model.quantization = "bnb-4bit"'),
        )
    if setup.machine == "cpu" and quantization == "fp8":
        return Refusal(
            "model.quantization",
            "fp8 weights need a GPU that computes in fp8",
            ('set model.quantization = "none"', "run on an NVIDIA card of 2022 or later"),
        )
    return None


_SIXTEEN_BIT = 'use a 16-bit base (model.quantization = "none", tuning.method = "lora")'


def _colocated(setup: Setup) -> str:
    """The way out to TRL's vLLM: from a quantised base it needs another base too."""
    if setup.quantization == "none":
        return 'set rollout.kind = "vllm_colocate"'
    return f'{_SIXTEEN_BIT} with rollout.kind = "vllm_colocate"'


def _refuse_shared(setup: Setup) -> Refusal | None:
    key = "rollout.kind"
    native = 'set rollout.kind = "native"'
    if setup.machine == "cpu":
        why = "Unsloth's own vLLM needs an NVIDIA GPU (its CPU backend raises on fast_inference)"
        return Refusal(key, why, (native, _colocated(setup)))
    if setup.engine != "unsloth":
        why = "unsloth_vllm is Unsloth's own engine, and engine.name is plain"
        return Refusal(key, why, (native, _colocated(setup)))
    if setup.machine == "unified":
        why = (
            "Unsloth switches its own vLLM off on GB10 and goes on without it, so neither vLLM nor standby would run"
            if setup.is_gb10
            else "Unsloth's own vLLM measures free memory without page cache, which on unified memory is far too little"
        )
        return Refusal(key, why, (_colocated(setup), native))
    if setup.tuning == "full":
        return Refusal(
            key,
            "Unsloth's own vLLM serves adapters only; it refuses full fine-tuning",
            ('set rollout.kind = "vllm_colocate"', 'set tuning.method = "lora"'),
        )
    if setup.quantization == "bnb-8bit":
        return Refusal(
            key,
            "Unsloth's own vLLM cannot read an 8-bit bitsandbytes base",
            ('set model.quantization = "bnb-4bit" and tuning.method = "qlora"', 'set rollout.kind = "native"'),
        )
    return None


def _refuse_colocate(setup: Setup) -> Refusal | None:
    if setup.quantization == "none":
        return None
    shared = (
        'set rollout.kind = "unsloth_vllm"'
        if setup.machine == "discrete" and setup.engine == "unsloth" and setup.quantization != "bnb-8bit"
        else 'set rollout.kind = "native"'
    )
    return Refusal(
        "rollout.kind",
        f"TRL's colocated vLLM is fed merged weights, and an adapter merged into a packed {setup.quantization} base is "
        "refused by vLLM or rounded away",
        (shared, _SIXTEEN_BIT),
    )


def _refuse_server(setup: Setup) -> Refusal | None:
    native = 'set rollout.kind = "native"'
    if setup.machine == "cpu":
        why = "weights reach a vLLM server over NCCL, which joins GPUs only"
        return Refusal("rollout.kind", why, (_colocated(setup), native))
    if setup.quantization != "none":
        why = f"a server is fed merged weights, and an adapter cannot be merged into a packed {setup.quantization} base"
        return Refusal("rollout.kind", why, (_SIXTEEN_BIT, native))
    return None


LOCAL_HOSTS = ("localhost", "127.0.0.1", "0.0.0.0", "::1")


def refusals(recipe: Recipe, machine: Machine) -> list[Refusal]:
    """Everything in this recipe that cannot be carried out on this machine, all at once."""
    if recipe.engine.name == "fake":
        return []
    chosen = choose_route(setup_of(recipe, machine))
    found = [chosen] if isinstance(chosen, Refusal) else []
    return found + [refusal for refusal in _refuse_settings(recipe, machine) if refusal is not None]


def _refuse_settings(recipe: Recipe, machine: Machine) -> list[Refusal | None]:
    return [
        _refuse_sleep_level(recipe, machine),
        _refuse_expandable_segments(recipe),
        _refuse_tensor_parallel(recipe, machine),
        _refuse_one_gpu_server(recipe, machine),
        _refuse_bf16(recipe, machine),
        *_refuse_offloads(recipe, machine),
        *_refuse_torchao_offloads(recipe, machine),
    ]


def _refuse_sleep_level(recipe: Recipe, machine: Machine) -> Refusal | None:
    vllm = recipe.vllm
    if not (machine.is_unified and recipe.rollout.kind == "vllm_colocate" and vllm.sleep and vllm.sleep_level == 1):
        return None
    return Refusal(
        "vllm.sleep_level",
        "level 1 copies the weights to host memory, which here is the same DRAM: a moment of twice the weights, and nothing "
        "freed but the cache",
        ("set vllm.sleep_level = 2", 'set rollout.kind = "native", which keeps one copy'),
    )


def _refuse_expandable_segments(recipe: Recipe) -> Refusal | None:
    asked = "expandable_segments:True" in (recipe.memory.alloc_conf or "")
    sleeps = (recipe.rollout.kind == "unsloth_vllm" and recipe.vllm.standby) or (
        recipe.rollout.kind == "vllm_colocate" and recipe.vllm.sleep
    )
    if not (asked and sleeps):
        return None
    name = "vllm.standby" if recipe.rollout.kind == "unsloth_vllm" else "vllm.sleep"
    return Refusal(
        "memory.alloc_conf",
        "expandable segments and an engine that sleeps exclude each other: both remap the same address ranges",
        ("drop memory.alloc_conf", f"set {name} = false"),
    )


def _refuse_tensor_parallel(recipe: Recipe, machine: Machine) -> Refusal | None:
    size = recipe.rollout.tensor_parallel_size
    if size == 1:
        return None
    if machine.is_unified:
        return Refusal(
            "rollout.tensor_parallel_size",
            f"{size} shards on machines with one GPU each would exchange activations over the network at every layer: two "
            "Sparks decode slower together than one alone",
            (
                "give each Spark its own replica: spark-rl launch-plan --machines 2 (data parallel)",
                "shard the training state: spark-rl launch-plan --machines 2 --parallel fsdp",
            ),
        )
    if recipe.rollout.kind in ("vllm_colocate", "vllm_server") and machine.gpu_count >= size:
        return None
    return Refusal(
        "rollout.tensor_parallel_size",
        f"{size} shards need {size} GPUs in one machine and a route that can use them; here are {machine.gpu_count}",
        ("set rollout.tensor_parallel_size = 1", "choose a smaller or a quantised model"),
    )


def _refuse_one_gpu_server(recipe: Recipe, machine: Machine) -> Refusal | None:
    if recipe.rollout.kind != "vllm_server" or machine.kind == "cpu" or machine.gpu_count > 1:
        return None
    host = urlsplit(recipe.rollout.server_base_url or "").hostname
    if host not in LOCAL_HOSTS:
        return None
    return Refusal(
        "rollout.server_base_url",
        "the server would share this machine's only GPU with the trainer, and NCCL refuses two ranks on one device",
        ('set rollout.kind = "vllm_colocate"', "serve from another machine (spark-rl launch-plan prints the commands)"),
    )


def _refuse_bf16(recipe: Recipe, machine: Machine) -> Refusal | None:
    if machine.supports_bf16 is not False or not (recipe.model.dtype == "bfloat16" or recipe.grpo.bf16):
        return None
    return Refusal(
        "model.dtype",
        f"{machine.gpu_name} does not compute in bf16, and would emulate it many times slower",
        (
            'set model.dtype = "float16" and grpo.bf16 = false',
            'set model.dtype = "float32" and grpo.bf16 = false (smaller model)',
        ),
    )


def _refuse_offloads(recipe: Recipe, machine: Machine) -> list[Refusal]:
    """On unified memory host and device are one pool: what is moved there has not been freed."""
    memory = recipe.memory
    if not machine.is_unified or memory.force_offload:
        return []
    asked = {
        "memory.offload_optimizer_state": (
            memory.offload_optimizer_state,
            'use 8-bit state (grpo.optim = "adamw_8bit")',
        ),
        "memory.park_optimizer_during_rollout": (
            memory.park_optimizer_during_rollout,
            'use 8-bit state (grpo.optim = "adamw_8bit")',
        ),
        "memory.offload_embedding": (memory.offload_embedding, "choose a smaller vllm.gpu_memory_utilization"),
        "memory.gradient_checkpointing": (
            memory.gradient_checkpointing == "unsloth",
            'set it to "on": recomputed, not copied',
        ),
        "grpo.optim": (
            recipe.grpo.optim.startswith("paged"),
            f'use "{recipe.grpo.optim.removeprefix("paged_")}": the same state without paging',
        ),
    }
    return [
        Refusal(
            key,
            "on unified memory the host is the same DRAM: moving data there frees nothing and costs copies",
            (instead, "set memory.force_offload = true to measure it yourself"),
        )
        for key, (is_asked, instead) in asked.items()
        if is_asked
    ]


TORCHAO_OPTIMIZERS = ("adamw_torch_4bit", "adamw_torch_8bit")
"""Their state is a tensor class of its own, which Unsloth's offloading does not know."""


def _refuse_torchao_offloads(recipe: Recipe, machine: Machine) -> list[Refusal]:
    memory, optim = recipe.memory, recipe.grpo.optim
    if machine.kind == "cpu" or recipe.engine.name != "unsloth" or optim not in TORCHAO_OPTIMIZERS:
        return []
    asked = {
        "memory.park_optimizer_during_rollout": (
            memory.park_optimizer_during_rollout,
            f"{optim} keeps its state in tensors that Unsloth cannot copy: the second rollout would fail",
        ),
        "memory.offload_optimizer_state": (
            memory.offload_optimizer_state,
            f"Unsloth unpacks the state of {optim} to fp32 when it moves it: several times the memory at every step",
        ),
    }
    other = 'set grpo.optim = "adamw_8bit"'
    if recipe.tuning.method == "full" and recipe.tuning.master_weights == "stochastic":
        other += ' and tuning.master_weights = "fp32"'  # it does not round stochastically
    return [
        Refusal(key, reason, (f"set {key} = false", other)) for key, (is_asked, reason) in asked.items() if is_asked
    ]


def plan_rollout(recipe: Recipe, machine: Machine) -> Plan:
    """The plan of a run. Raises Refused with every refusal, each with its two ways out."""
    found = refusals(recipe, machine)
    if found:
        raise Refused("\n".join(str(refusal) for refusal in found))
    route = choose_route(setup_of(recipe, machine))
    assert isinstance(route, Route)
    return Plan(
        route,
        environment(recipe, machine),
        llm_arguments(recipe, machine),
        tuple(lever_notes(recipe, machine)),
    )
