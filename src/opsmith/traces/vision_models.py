"""Image and video models of timm and torchvision, with random weights."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

from opsmith.errors import BadInput, MissingDependency
from opsmith.traces.subject import Sizes, Subject, classification_loss, in_dtype, mean_of_outputs, unknown_model

_BATCH_SIZE = 32
_CLIP_FRAMES = 16


class TimmModel:
    """An image classifier of timm.

    Raises:
        MissingDependency: timm is not installed.
        UnknownName: timm has no such model.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._timm = _import("timm")
        if not self._timm.is_model(name):
            raise unknown_model("timm", name, self._timm.list_models())

    def build(self, config: Mapping[str, Any], sizes: Sizes, dtype: torch.dtype) -> Subject:
        arguments = dict(config)
        if sizes.image_size is not None and _takes_image_size(self._timm, self._name):
            arguments["img_size"] = sizes.image_size
        module = self._timm.create_model(self._name, pretrained=False, **arguments)
        channels, height, width = module.default_cfg["input_size"]
        if sizes.image_size is not None:
            height = width = sizes.image_size
        images = torch.randn(sizes.batch_size or _BATCH_SIZE, channels, height, width)
        in_dtype(module, dtype)
        return Subject(module=module, args=(images,), loss=classification_loss)


def _takes_image_size(timm: Any, name: str) -> bool:
    """Transformers have tables as large as the image; convolutions take any."""
    return bool(timm.models.get_pretrained_cfg_value(name, "fixed_input_size"))


class TorchvisionModel:
    """A classifier, a segmentation, an optical flow or a video model of torchvision.

    Detection models are no subjects: what they compute depends on the boxes that they find.

    Raises:
        MissingDependency: torchvision is not installed.
        UnknownName: torchvision has no such model.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._models = _import("torchvision").models
        if name not in self._models.list_models():
            raise unknown_model("torchvision", name, self._models.list_models())

    def build(self, config: Mapping[str, Any], sizes: Sizes, dtype: torch.dtype) -> Subject:
        family = self._models.get_model_builder(self._name).__module__.removeprefix("torchvision.models.")
        if family.startswith("detection"):
            raise BadInput(f"{self._name} needs images with boxes; trace a script that has some")
        module = self._models.get_model(self._name, weights=None, **self._without_weights(config))
        batch = sizes.batch_size or _BATCH_SIZE
        in_dtype(module, dtype)
        if family.startswith("video"):
            clip = torch.randn(batch, 3, _CLIP_FRAMES, *[sizes.image_size or _video_size(self._name)] * 2)
            return Subject(module=module, args=(clip,), loss=classification_loss)
        if family.startswith("optical_flow"):
            frames = [torch.randn(batch, 3, *[sizes.image_size or 256] * 2) for _ in range(2)]
            return Subject(module=module, args=tuple(frames), loss=mean_of_outputs)
        images = torch.randn(batch, 3, *[sizes.image_size or _image_size(self._name, family)] * 2)
        if family.startswith("segmentation"):
            return Subject(module=module, args=(images,), loss=lambda output: classification_loss(output["out"]))
        return Subject(module=module, args=(images,), loss=_loss_with_auxiliaries)

    def _without_weights(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Some models load the weights of their backbone unless they are told not to."""
        has_backbone = "weights_backbone" in self._models.get_model_builder(self._name).__annotations__
        return {**({"weights_backbone": None} if has_backbone else {}), **config}


def _video_size(name: str) -> int:
    return 224 if name.startswith(("mvit", "s3d", "swin3d")) else 112


def _image_size(name: str, family: str) -> int:
    if family.startswith("segmentation"):
        return 520
    return 299 if name == "inception_v3" else 224


def _loss_with_auxiliaries(output: Any) -> torch.Tensor:
    """Cross entropy of the logits and of those of auxiliary heads, which inception and googlenet have."""
    if isinstance(output, torch.Tensor):
        return classification_loss(output)
    return torch.stack([classification_loss(logits) for logits in output if logits is not None]).sum()


def _import(package: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError as exc:
        raise MissingDependency(exc.name or package, extra="models") from exc
    except RuntimeError as exc:
        # torchvision looks for its compiled ops; a build for another torch does not have them.
        raise BadInput(f"{package} does not work with torch {torch.__version__}: {exc}") from exc
