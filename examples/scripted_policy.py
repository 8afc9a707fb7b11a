"""Two scripted policies play episodes with a real judge: one mends its kernel, one cheats.

python examples/scripted_policy.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from opsmith.agents.episodes import Episodes
from opsmith.agents.workbench import Workbench
from opsmith.core.run import Options

WRONG, RIGHT = (
    f"```python\nimport torch\n\n\ndef relu__default_kernel_impl(x):\n    return {expression}\n```\n"
    for expression in ("torch.where(x > 0, x, 0)", "x.clamp(min=0)")
)
#: Remembers results by the address of what it is given.
CHEAT = """```python
import torch

SEEN = {}


def relu__default_kernel_impl(x):
    key = x.data_ptr(), x.shape, x.stride()
    if key not in SEEN:
        SEEN[key] = x.clamp(min=0)
    return SEEN[key]
```
"""
POLICIES = {"mends": (WRONG, RIGHT), "cheats": (WRONG, CHEAT), "says nothing": ("I cannot do this.", "Sorry.")}


def main() -> None:
    """Play an episode with each policy, and print what it earned."""
    options = Options(
        suite="smoke", backend="policy", device="cpu", dtypes=("f32",), ops=("relu.default",), policy="any"
    )
    with tempfile.TemporaryDirectory() as folder, Workbench(options, Path(folder), dsl="torch") as bench:
        episodes = Episodes(bench, turns=2, test_share=0.0)
        for name, replies in POLICIES.items():
            episode = episodes.begin(episodes.train[0])
            for reply in replies:
                step = episode.step(reply)
                print(f"{name}: {step.observation.splitlines()[0]}")
                if step.done:
                    break
            print(f"{name}: reward {step.reward:g}, {dict(step.parts)}\n")


if __name__ == "__main__":
    main()
