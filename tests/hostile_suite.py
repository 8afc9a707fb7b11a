"""Suite ``hostile``: the OpInfo cases of the ops in ``tests/hostile``, and nothing else to enumerate."""

from __future__ import annotations

from opsmith.suites.opinfo import OpInfoSuite

#: The OpInfos that call the ops of the directory.
ENTRIES = (
    "sigmoid",
    "tanh",
    "logit",
    "trace",
    "native_dropout_backward",
    "matrix_exp",
    "block_diag",
    "select_scatter",
    *(
        f"nn.functional.{name}"
        for name in (
            "silu",
            "mish",
            "softplus",
            "hardsigmoid",
            "hardswish",
            "gelu",
            "glu",
            "mse_loss",
            "smooth_l1_loss",
            "soft_margin_loss",
            "huber_loss",
            "pixel_shuffle",
            "hardshrink",
            "softshrink",
            "elu",
            "threshold",
            "prelu",
            "rrelu",
            "logsigmoid",
            "hardtanh",
            "embedding",
            "pad.reflect",
            "pad.replicate",
            "interpolate.nearest",
        )
    ),
)


class HostileSuite(OpInfoSuite):
    """OpInfo, cut down to :data:`ENTRIES`."""

    def entries(self, dtype: str, device: str) -> tuple[str, ...]:
        return tuple(entry for entry in super().entries(dtype, device) if entry in ENTRIES)
