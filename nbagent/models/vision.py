"""Which models take pictures, by name: servers do not say it in one common way."""

from __future__ import annotations

import re

#: Families whose every member sees, and marks by which members of mixed families are told.
_SEES = re.compile(
    r"gpt-4o(?!.*(?:audio|realtime|transcribe|tts))|gpt-4\.\d|gpt-4-turbo|gpt-4-vision|gpt-5|chatgpt-4o"
    r"|\bo[134](?:-pro)?\b(?!-mini)|o4-mini"
    r"|claude-(?:3|[a-z]+-[4-9]|[4-9])|gemini(?!.*embedding)|gemma-?3(?!n?[-:]?(?:1b|270m))"
    r"|llava|bakllava|pixtral|mistral-(?:small-3\.[1-9]|medium-3)|llama-?3\.2[-:]?(?:11b|90b|vision)|llama-?4"
    r"|\bvl\b|vl[-:]|-vl|vision|internvl|minicpm-v|moondream|molmo|phi-[34](?:\.5)?-(?:vision|multimodal)|grok-(?:4|.*vision)"
    r"|kimi-vl|glm-4(?:\.\d)?v|step-1v|idefics|paligemma|qvq|nova-(?:lite|pro|premier)",
    re.IGNORECASE,
)


def sees(model: str) -> bool:
    """Say whether a model of this name is known to take pictures; of an unknown one it is not."""
    return _SEES.search(model) is not None


def takes_figures(model: str, vision: str) -> bool:
    """Say whether figures are sent to a model, by the setting `vision`."""
    return vision == "on" or (vision == "auto" and sees(model))
