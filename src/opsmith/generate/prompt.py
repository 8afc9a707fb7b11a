"""Prompts: the rules, the language, the task, and what earlier attempts found, as one conversation."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from pathlib import Path

from opsmith.backends.scaffold import stub
from opsmith.core.op import folder_name
from opsmith.errors import UnknownName
from opsmith.generate.attempt import Attempt
from opsmith.generate.chat import Message, Role
from opsmith.generate.contexts import CONTEXTS, Setting
from opsmith.generate.feedback import findings
from opsmith.session import AskedTask

_FOLDER = importlib.resources.files("opsmith.generate").joinpath("templates")
DSLS = (
    *("cpp", "cuda", "cupy", "cutedsl", "cutile", "gluon", "helion", "metal", "numba", "pallas", "tilelang", "torch"),
    "triton",
)
#: How a model that is asked for a reply hands its kernel in.
IN_A_REPLY = (
    "Answer with one Python file in one ```python code block, complete, imports included. Say little around it."
)
_POLICIES = {
    "native": "Policy `native`: every value is computed by your own kernel code. Of PyTorch you may use allocation "
    "(`torch.empty`, `empty_like`, `empty_strided`), views and metadata; any other op of it is found and rejected.",
    "any": "Policy `any`: other PyTorch ops may be used, the one that is asked for may not.",
}
#: Of what ranks answer together.
_POLICIES_OF_RANKS = {
    "native": "Policy `native`: your own code moves the data. On GPUs that is over symmetric memory: nothing of NCCL, "
    "gloo or `torch.distributed`'s collectives, sends and barriers. On CPUs messages between two ranks "
    "(`isend`, `irecv`) and shared memory are allowed, collectives are not. PyTorch's arithmetic on a rank's own "
    "tensors is allowed.",
    "any": "Policy `any`: everything is allowed.",
}


def parse_dsl(name: str) -> str:
    """A language that there is a template for.

    Raises:
        UnknownName: there is none.
    """
    if name not in DSLS:
        raise UnknownName("dsl", name, DSLS)
    return name


def entry_point(task: AskedTask) -> str:
    """The name that a kernel file for a task defines."""
    return "ModelNew" if task.op.kind.of_problems else f"{folder_name(task.name)}_kernel_impl"


def conversation(
    setting: Setting,
    contexts: Sequence[str],
    shown: Sequence[Attempt],
    *,
    policy: str,
    own_model: str,
    more: str = "",
    crosses: bool = False,
) -> tuple[Message, ...]:
    """What a model is asked.

    Args:
        setting: the task and what is known of it.
        contexts: names of what it is told.
        shown: earlier attempts, the one to improve last; each has a source, or none where there was no code.
        policy: of the judge.
        own_model: the model's name: attempts of others are shown as such.
        more: said before what is asked for; an advisor's hints.
        crosses: one kernel is to be made of those that are shown.
    """
    messages = [
        Message(Role.SYSTEM, _rules(setting, policy, IN_A_REPLY)),
        Message(Role.USER, task_text(setting, contexts)),
    ]
    for attempt in shown:
        if attempt.source is not None and attempt.model == own_model:
            messages.append(Message(Role.ASSISTANT, f"```python\n{attempt.source}```"))
            messages.append(Message(Role.USER, _reaction(attempt, contexts)))
        else:
            said = _of_another(attempt, contexts) if attempt.source is not None else _told(attempt, contexts)
            messages[-1] = Message(Role.USER, f"{messages[-1].text}\n\n{said}".rstrip())
    if more:
        messages[-1] = Message(Role.USER, f"{messages[-1].text}\n\n{more}")
    if shown:
        messages[-1] = Message(Role.USER, f"{messages[-1].text}\n\n{_request(shown[-1], crosses=crosses)}")
    return tuple(messages)


def statement(setting: Setting, contexts: Sequence[str], *, policy: str, answer: str) -> str:
    """A task and its rules as one text, for a program that hands its kernels in by itself.

    Args:
        setting: the task and what is known of it.
        contexts: names of what is told.
        policy: of the judge.
        answer: how a kernel is handed in.
    """
    return f"{_rules(setting, policy, answer)}\n{task_text(setting, contexts)}"


def _rules(setting: Setting, policy: str, answer: str) -> str:
    is_module = setting.task.op.kind.of_problems
    note = " with the parameters and buffers of `Model` under the same names" if is_module else " with this signature"
    rules = _template("rules").format(
        name=entry_point(setting.task),
        signature_note=note,
        policy_note=(_POLICIES_OF_RANKS if setting.task.op.kind.on_ranks else _POLICIES)[policy],
        answer=answer,
    )
    of_ranks = [_template("ranks")] if setting.task.op.kind.on_ranks else []
    return "\n".join([rules, *of_ranks, _template(setting.dsl)])


def task_text(setting: Setting, contexts: Sequence[str]) -> str:
    """What is to be written, and what is told about it."""
    task = setting.task
    if task.op.kind.of_problems:
        source = Path(task.op.schema).read_text()
        first = f"Write `ModelNew`, which does what this `Model` does, faster:\n\n```python\n{source}\n```"
    else:
        first = f"Write a kernel for `{task.name}`:\n\n```python\n{stub(task.op)}```"
    told = [CONTEXTS[name](setting) for name in contexts if name in CONTEXTS]
    return "\n\n".join([first, *filter(None, told)])


def _of_another(attempt: Attempt, contexts: Sequence[str]) -> str:
    told = _told(attempt, contexts)
    return f"What another engineer wrote for it:\n\n```python\n{attempt.source}```\n\n{told}".rstrip()


def _reaction(attempt: Attempt, contexts: Sequence[str]) -> str:
    return _told(attempt, contexts) or ("It was accepted." if attempt.accepted else "It was not accepted.")


def _told(attempt: Attempt, contexts: Sequence[str]) -> str:
    if not attempt.accepted and "failures" not in contexts:
        return "" if attempt.review is None else attempt.review.text  # What a person asks is never left out.
    return findings(attempt, profile="profile" in contexts)


def _request(last: Attempt, *, crosses: bool) -> str:
    if crosses:
        return (
            "Make one kernel of those above: take from each what makes it fast, or right where another one is wrong, "
            "and leave what does not. Answer with the whole file."
        )
    if last.review is not None:
        return "Write it anew as the reviewer asks, and keep right what is right. Answer with the whole file."
    if last.accepted:
        return "Make it faster, and keep it right. Answer with the whole file."
    return "Repair it, or start anew if that is better. Answer with the whole file."


def _template(name: str) -> str:
    return _FOLDER.joinpath(f"{name}.md").read_text()
