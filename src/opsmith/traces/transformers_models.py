"""Models of transformers with random weights, from a model type, a class or a config file."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from opsmith.errors import BadInput, MissingDependency
from opsmith.traces.subject import Sizes, Subject, classification_loss, mean_of_outputs, unknown_model

_SEQUENCE_LENGTH = 1024
_TEXT_BATCH_SIZE = 4
_IMAGE_BATCH_SIZE = 32
_IMAGE_SIZE = 224

#: Ten seconds at the 16 kHz that speech models listen at.
_SAMPLES = 160_000

#: Whisper's encoder halves the length of the spectrogram.
_FRAMES_PER_POSITION = 2

#: Which head a model type gets: the first of these tasks that it has one for.
_TASKS = (
    "SEQ_TO_SEQ_CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "MASKED_LM",
    "CAUSAL_LM",
    "IMAGE_CLASSIFICATION",
    "CTC",
    "SEMANTIC_SEGMENTATION",
    "DEPTH_ESTIMATION",
)


class TransformersModel:
    """A model of transformers.

    Args:
        name: a model type (``llama``), a class (``LlamaForCausalLM``) or the path of a config.json,
            whose ``architectures`` names the class.

    Raises:
        MissingDependency: transformers is not installed.
        UnknownName: transformers has neither such a type nor such a class.
        BadInput: the config file cannot be read, or is no config.
    """

    def __init__(self, name: str) -> None:
        if importlib.util.find_spec("transformers") is None:
            raise MissingDependency("transformers", extra="models")
        import transformers

        self._from_file: dict[str, Any] = {}
        if name.endswith(".json"):
            self._from_file = _read_config(Path(name))
            self._class = _class_of_file(self._from_file, name)
        elif name in transformers.CONFIG_MAPPING:
            self._class = _class_of_type(name)
        else:
            self._class = getattr(transformers, name, None)
            if not (isinstance(self._class, type) and issubclass(self._class, transformers.PreTrainedModel)):
                raise unknown_model("transformers", name, transformers.CONFIG_MAPPING)

    def build(self, config: Mapping[str, Any], sizes: Sizes, dtype: torch.dtype) -> Subject:
        settings = self._class.config_class(**{**self._from_file, **config})
        return _subject(self._class._from_config(settings, dtype=dtype), sizes)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise BadInput(f"{path} is no JSON: {exc}") from exc
    if not isinstance(config, dict) or "model_type" not in config:
        raise BadInput(f"{path} is no config of transformers: it has no model_type")
    return config


def _class_of_file(config: Mapping[str, Any], name: str) -> Any:
    import transformers

    if config["model_type"] not in transformers.CONFIG_MAPPING:
        raise unknown_model("transformers", str(config["model_type"]), transformers.CONFIG_MAPPING)
    architectures = config.get("architectures")
    if not architectures:
        return _class_of_type(config["model_type"])
    if not hasattr(transformers, architectures[0]):
        raise BadInput(f"{name}: transformers has no class {architectures[0]}")
    return getattr(transformers, architectures[0])


def _class_of_type(model_type: str) -> Any:
    """The model class for a type: with the head of the first task that it has, else without one."""
    import transformers
    from transformers.models.auto import modeling_auto

    for task in _TASKS:
        names = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES")
        if model_type in names:
            found = names[model_type]
            return getattr(transformers, found if isinstance(found, str) else found[0])
    return transformers.MODEL_MAPPING[transformers.CONFIG_MAPPING[model_type]]


def _subject(module: Any, sizes: Sizes) -> Subject:
    """Give a model the inputs that its class names and, for training, labels for its head."""
    config, kind = module.config, type(module).__name__
    inputs = _main_inputs(module.main_input_name, config, sizes)
    if config.is_encoder_decoder:
        shape = (inputs[module.main_input_name].shape[0], _length(config, sizes))
        inputs["decoder_input_ids"] = torch.zeros(shape, dtype=torch.long)
    if kind.endswith("ForImageClassification"):
        return Subject(module=module, kwargs=inputs, loss=lambda output: classification_loss(output.logits))
    if kind.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration")):
        labels = inputs.get("decoder_input_ids", inputs.get("input_ids"))
        follow_up = (lambda output: _next_token(module, inputs, output)) if "ForMaskedLM" not in kind else None
        return Subject(
            module=module,
            kwargs=inputs,
            training_kwargs={"labels": labels, "use_cache": False} if follow_up else {"labels": labels},
            loss=lambda output: output.loss,
            follow_up=follow_up,
        )
    return Subject(module=module, kwargs=inputs, loss=mean_of_outputs)


def _main_inputs(name: str, config: Any, sizes: Sizes) -> dict[str, torch.Tensor]:
    images = sizes.batch_size or _IMAGE_BATCH_SIZE
    texts = sizes.batch_size or _TEXT_BATCH_SIZE
    if name == "pixel_values":
        height, width = (sizes.image_size,) * 2 if sizes.image_size else _image_size(config)
        return {name: torch.randn(images, getattr(config, "num_channels", 3), height, width)}
    if name == "input_values":
        return {name: torch.randn(texts, _SAMPLES)}
    if name == "input_features" and hasattr(config, "max_source_positions"):
        return {name: torch.randn(texts, config.num_mel_bins, config.max_source_positions * _FRAMES_PER_POSITION)}
    if name == "input_ids":
        return {name: torch.zeros(texts, _length(config, sizes), dtype=torch.long)}
    raise BadInput(f"{config.model_type} is called with {name}; write a FILE.py:FUNCTION that makes it and its inputs")


def _image_size(config: Any) -> tuple[int, int]:
    """Height and width of the images that a model, or its backbone, is made for."""
    for part in (config, getattr(config, "backbone_config", None)):
        if size := getattr(part, "image_size", None):
            return tuple(size) if isinstance(size, (list, tuple)) else (size, size)
    return _IMAGE_SIZE, _IMAGE_SIZE


def _length(config: Any, sizes: Sizes) -> int:
    """Tokens of a text: as asked, else the default, cut to the positions that the model has learned."""
    limits = [getattr(config, name, None) for name in ("max_position_embeddings", "max_target_positions")]
    return sizes.sequence_length or min([_SEQUENCE_LENGTH, *[limit for limit in limits if limit]])


def _next_token(module: Any, inputs: Mapping[str, Any], output: Any) -> Any:
    """Call a model for one more token, with the cache of the call before."""
    cache = getattr(output, "past_key_values", None)
    if cache is None:
        return None
    if "decoder_input_ids" in inputs:
        from transformers.modeling_outputs import BaseModelOutput

        return module(
            encoder_outputs=BaseModelOutput(last_hidden_state=output.encoder_last_hidden_state),
            decoder_input_ids=inputs["decoder_input_ids"][:, -1:],
            past_key_values=cache,
        )
    return module(input_ids=inputs["input_ids"][:, -1:], past_key_values=cache)


@contextlib.contextmanager
def eager_paths() -> Iterator[None]:
    """Let transformers take the paths that it takes when nothing is traced.

    Where it meets fake tensors it takes those that ``torch.compile`` can follow: it builds masks
    that eager PyTorch does without.
    """
    if importlib.util.find_spec("transformers") is None:
        yield
        return
    from transformers.utils import import_utils

    if not hasattr(import_utils, "is_fake_tensor"):
        yield  # Before version 5 it did not look.
        return
    with mock.patch.object(import_utils, "is_fake_tensor", return_value=False):
        yield
