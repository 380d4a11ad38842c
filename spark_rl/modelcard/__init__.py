"""Facts about a model without loading it: parameter counts, layer shapes, cache per token."""

from __future__ import annotations

from spark_rl.modelcard.families import card_from_config, is_vision_config, known_families
from spark_rl.modelcard.shape import Attention, Layer, LayerRun, Linear, ModelCard, is_lora_target
from spark_rl.modelcard.source import find_card, is_mixture, shipped_cards

__all__ = [
    "Attention",
    "Layer",
    "LayerRun",
    "Linear",
    "ModelCard",
    "card_from_config",
    "find_card",
    "is_lora_target",
    "is_mixture",
    "is_vision_config",
    "known_families",
    "shipped_cards",
]
