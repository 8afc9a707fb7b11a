"""``opsmith generate``: language models write kernels, which are judged in a loop."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsmith.cli import agent as agents
from opsmith.cli import selection
from opsmith.cli.document import print_json
from opsmith.cli.preflight import op_patterns
from opsmith.cli.progress import StageProgress
from opsmith.cli.run import Baseline, Jobs, Json, Policy, Seed, Timing, Tolerance
from opsmith.core.counts import counted
from opsmith.core.run import Options, Summary, new_seed, write_atomically
from opsmith.core.seeds import derive_seed
from opsmith.devices import kind_of
from opsmith.errors import BadInput
from opsmith.generate.advisor.counsel import advisor_named, parse_advisor
from opsmith.generate.advisor.figures import seen_by_advisor
from opsmith.generate.advisor.question import CONTEXTS as ADVISOR_CONTEXTS
from opsmith.generate.attempt_list import attempt_list
from opsmith.generate.background import backgrounds
from opsmith.generate.budget import Budget, Prices
from opsmith.generate.campaign import Campaign, CampaignOptions, CutShort
from opsmith.generate.chat import TaskAuthor
from opsmith.generate.contexts import references_hash, selected
from opsmith.generate.held_out import Evaluate, judge_again
from opsmith.generate.journal import Journal
from opsmith.generate.op_facts import op_facts
from opsmith.generate.page import campaign_page
from opsmith.generate.pictures.of_tasks import task_pictures
from opsmith.generate.prompt import parse_dsl
from opsmith.generate.providers import author, full_names
from opsmith.generate.results import (
    CampaignSummary,
    attempt_kinds,
    summarise_campaign,
    write_directory,
    write_kernels,
    write_unjudged,
)
from opsmith.generate.strategies import strategy_named
from opsmith.generate.waiting import write_waiting
from opsmith.pipeline import evaluate
from opsmith.report.strangers import one_line
from opsmith.reviews.book import ReviewBook
from opsmith.runner.machine.cores import default_jobs
from opsmith.session import Session

EPILOG = """
Examples:

  opsmith generate --provider inductor --dsl cpp --suite opinfo --ops 'relu.default,exp.default' -o by-compiler

  opsmith generate --provider inductor,tuner --dsl triton --strategy evolve --attempts 12 --ops 'softmax.int' -o evolved

  OPENAI_API_KEY=... opsmith generate --model openai:NAME --ops 'gelu.default' --strategy refine --budget usd=2 -o gelu

  opsmith generate --model openai:ONE --model openai:TWO --strategy swarm --suite modules --problems problems/ -o swarm

  opsmith generate --model openai:NAME --advisor openai:OTHER --advisor-sees pictures --ops gelu.default -o advised

  opsmith generate --model 'command:./my-model' --dsl cpp --ops relu.default --context all,-profile -o mine --resume

  opsmith generate --agent './my-agent TASK.md' --agent-host api.example.com --agent-env KEY --ops gelu -o by-agent
"""

#: Exit status of an interrupted program.
INTERRUPTED = 130
#: How each attempt ended, and why.
ATTEMPTS = "attempts.txt"
JOURNAL, SUMMARY, PAGE, KERNELS, UNJUDGED = "journal.sqlite", "summary.json", "report.html", "kernels", "unjudged"
#: Replies are waited for, not computed: many at a time cost nothing here.
EXCHANGES_AT_A_TIME = 16


def generate(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory of the campaign.", show_default=False)],
    provider: Annotated[
        str | None,
        typer.Option(help="Who writes: openai, command, or inductor,tuner, which need no model.", show_default=False),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="PROVIDER:MODEL; several times for several.", show_default=False)
    ] = None,
    suite: selection.Suite = "opinfo",
    ops: selection.Ops = "",
    dtype: selection.Dtype = "",
    device: selection.Device = "",
    dataset: selection.Dataset = None,
    top_inputs: selection.TopInputs = None,
    problems: selection.Problems = None,
    sizes: selection.Sizes = "full",
    ranks: selection.Ranks = "",
    dsl: Annotated[str, typer.Option(help="What to write in.", show_default="triton on a GPU, cpp on a CPU")] = "",
    strategy: Annotated[str, typer.Option(help="best-of-n, refine, beam, swarm or evolve.")] = "refine",
    attempts: Annotated[int, typer.Option(min=1, help="Attempts of each model at a task.")] = 4,
    budget: Annotated[str, typer.Option(help="Limits: usd=5,tokens=2e6,device_s=900.", show_default="none")] = "",
    context: Annotated[
        str, typer.Option(help="What models are told: all, none, names, or all,-NAME to leave one out.")
    ] = "all",
    references: Annotated[
        Path | None, typer.Option(help="Kernel directory that models are shown.", show_default=False)
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="Prices of models, as JSON.", show_default=False)] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="Of sampling.", show_default="the model's")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of one reply.")] = 16384,
    most_judging_s: Annotated[float, typer.Option(min=1, help="Seconds that judging one attempt may take.")] = 300.0,
    advisor: Annotated[
        str | None, typer.Option(help="PROVIDER:MODEL that sees profiles and gives writers hints.", show_default=False)
    ] = None,
    advisor_sees: Annotated[
        Literal["text", "pictures"], typer.Option(help="What is measured as text alone, or with pictures of it.")
    ] = "text",
    advisor_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of the budget's money and tokens that the advisor may spend.")
    ] = 0.25,
    policy: Policy = "native",
    timing: Timing = "quick",
    baseline: Baseline = "eager",
    tolerance: Tolerance = "strict",
    isolation: Annotated[
        Literal["kernel", "backend"],
        typer.Option(
            help="One worker process per attempt, or one that attempts share until one of them fails; "
            "what is chosen is judged once more by itself either way."
        ),
    ] = "kernel",
    jobs: Jobs = None,
    seed: Seed = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the campaign in -o.")] = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="Go through the campaign in -o again, from its journal; nobody is asked.")
    ] = False,
    review: Annotated[
        bool,
        typer.Option("--review", help="Stop for a person at an accepted kernel; --resume goes on with their word."),
    ] = False,
    review_after: Annotated[int, typer.Option(min=1, help="Failed attempts after which --review stops, too.")] = 3,
    agent: agents.Agent = None,
    agent_host: agents.AgentHost = None,
    agent_env: agents.AgentEnv = None,
    agent_home: agents.AgentHome = None,
    agent_limits: agents.AgentLimitsText = "",
    agent_memory: agents.AgentMemory = 16.0,
    json_output: Json = False,
) -> int:
    """Have kernels written by language models, or by torch's compiler, and judge them in a loop.

    Writes to -o: kernels/ (those that were accepted, a kernel directory), run/ (their run on values that chose none
    of them), attempts/, journal.sqlite (every exchange; nothing is paid for twice) and summary.json. Exit status 0
    when the campaign is complete, whatever was accepted; 1 when more was spent than the budget allows.
    """
    on = selection.parse_device(device)
    judging = Options(
        suite=suite,
        backend=str(out),
        device=on,
        dtypes=selection.parse_dtype(dtype, suite=suite, device=on),
        ops=op_patterns(selection.parse_ops(ops), suite=suite),
        policy=policy,
        timing=timing,
        baseline=baseline,
        isolation=isolation,
        tolerance=tolerance,
        selection=selection.parse_selection(
            suite, dataset=dataset, problems=problems, top_inputs=top_inputs, sizes=sizes, ranks=ranks
        ),
    )
    if agent is not None:
        return agents.write_by_agent(
            agents.agent_command(agent, agent_host, agent_env, agent_home, agent_limits, agent_memory),
            judging,
            out,
            dsl=parse_dsl(dsl or kind_of(on).default_dsl),
            jobs=jobs or default_jobs(judging),
            most_judging_s=most_judging_s,
            resume=resume,
            json_output=json_output,
        )
    options = CampaignOptions(
        judging=judging,
        models=full_names(provider, model or ()),
        strategy=strategy,
        attempts=attempts,
        dsl=parse_dsl(dsl or kind_of(on).default_dsl),
        contexts=selected(context),
        references=None if references is None else str(references),
        references_hash=None if references is None else references_hash(references),
        temperature=temperature,
        max_tokens=max_tokens,
        budget=Budget.parse(budget),
        most_judging_s=most_judging_s,
        advisor=parse_advisor(advisor, sees=advisor_sees, share=advisor_share),
        review_after=review_after if review else None,
    )
    strategy_named(strategy, members=len(options.models), attempts=attempts, timed=timing != "off")
    if options.budget.device_s is not None and options.budget.device_s < most_judging_s:
        raise BadInput(
            f"--budget device_s={options.budget.device_s:g} is less than judging one attempt may take; give more, or "
            f"lower --most-judging-s, which is {most_judging_s:g}"
        )
    _check_out(out, resume=resume or replay)
    try:
        with _room_for(out):
            summary = _carry_out(
                options,
                out,
                prices=Prices(prices),
                seed=seed,
                jobs=jobs or default_jobs(judging),
                resume=resume or replay,
                offline=replay,
            )
    except CutShort as exc:
        sys.stderr.write(f"opsmith: ended; {exc.under_way} attempts under way count as sent; continue with --resume\n")
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # Threads wait for answers, and Python would wait for them.
    if json_output:
        print_json(summary)
    else:
        _print(summary, out)
    return int(bool(summary.spent.exceeds(options.budget)))


@contextlib.contextmanager
def _room_for(out: Path) -> Iterator[None]:
    """Say how to go on where a file of the campaign found no room; its journal tells of its own."""
    try:
        yield
    except OSError as exc:
        if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = exc.filename or out
        raise BadInput(f"{exc.strerror} for {where}; make room, then continue with --resume") from exc


def _check_out(out: Path, *, resume: bool) -> None:
    if not resume and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} exists and is not empty; choose another -o, or continue that campaign with --resume")
    if resume and not (out / JOURNAL).is_file():
        raise BadInput(f"{out} holds no campaign: there is no {JOURNAL} in it")


def _carry_out(
    options: CampaignOptions, out: Path, *, prices: Prices, seed: int | None, jobs: int, resume: bool, offline: bool
) -> CampaignSummary:
    _require_prices(options, prices)
    with contextlib.ExitStack() as held:
        models = [author(name) for name in options.models]
        advisor = None if options.advisor is None else advisor_named(options.advisor)
        for model in (*models, *([advisor] if advisor is not None else [])):
            held.callback(model.close)
        out.mkdir(parents=True, exist_ok=True)
        journal = held.enter_context(contextlib.closing(Journal(out / JOURNAL, resume=resume)))
        with StageProgress() as progress:
            own_seed = journal.open_campaign(options.identity, seed=new_seed(seed), given=seed)
            # Statuses can be found again, times cannot.
            judging = msgspec.structs.replace(options.judging, timing="off") if offline else options.judging
            copies = out / "judged" / "copies"
            with Session(judging, copies, withheld=[out], seed=own_seed, jobs=jobs, progress=progress) as session:
                asked = [name for name, task in session.tasks.items() if not task.op.kind.of_problems]
                asks = not all(isinstance(model, TaskAuthor) for model in models)
                told = (*(options.contexts if asks else ()), *(ADVISOR_CONTEXTS if advisor is not None else ()))
                facts = op_facts(asked) if {"documentation", "decomposition"} & set(told) else {}
                background = backgrounds(session, told, dsl=options.dsl, out=out, progress=progress)
                progress.stage("writing and judging", 0)
                done = itertools.count(1)
                campaign = Campaign(
                    options,
                    models,
                    session,
                    journal,
                    prices=prices,
                    facts=facts,
                    background=background,
                    advisor=advisor,
                    out=out,
                    told=lambda attempt, task: progress.advance(next(done), f"{task.name}: {attempt.outcome}"),
                    offline=offline,
                    waiting=_say_waiting,
                )
                histories = campaign.run(tasks_at_a_time=2 * jobs, exchanges_at_a_time=EXCHANGES_AT_A_TIME)
                journal.keep_attempts((history.task, attempt) for history in histories for attempt in history.attempts)
                write_unjudged(out / UNJUDGED, out, session.tasks, histories)
            last = judge_again(
                options.judging,
                out,
                histories,
                journal,
                evaluate=_evaluate(seed=derive_seed(own_seed, "held out"), jobs=jobs, progress=progress),
                write_directory=lambda folder, chosen: write_directory(folder, out, session.tasks, chosen),
            )
            write_kernels(out / KERNELS, out, session.tasks, last)
            _keep_reviews(campaign, out)
            summary = summarise_campaign(options, histories, last, journal, void=session.void)
            if offline:
                again = campaign.judged_again.values()
                counts = {"judged": len(again), "differ": sum(not same for same in again)}
                summary = msgspec.structs.replace(summary, replayed=counts)
            kinds = {history.task: attempt_kinds(history, last) for history in histories}
            write_atomically(out / SUMMARY, msgspec.json.format(msgspec.json.encode(summary), indent=2))
            seen = seen_by_advisor(journal, histories)
            pictures = task_pictures(journal, histories)
            write_atomically(out / PAGE, campaign_page(summary, kinds, seen, pictures).encode())
            write_atomically(out / ATTEMPTS, attempt_list(histories).encode())
            return summary


def _keep_reviews(campaign: Campaign, out: Path) -> None:
    """Tell what waits for a person, and put the reviews beside the kernels that they are about."""
    if campaign.gate is not None:
        write_waiting(out, campaign.gate.waiting)
    if reviews := ReviewBook(out).reviews():
        ReviewBook(out / KERNELS).append(reviews)


def _say_waiting(under_way: int) -> None:
    sys.stderr.write(
        f"\nopsmith: interrupted; waiting for {under_way} attempts under way, which may have been paid for; "
        "interrupt again to end now\n"
    )


def _evaluate(*, seed: int, jobs: int, progress: StageProgress) -> Evaluate:
    command = ("opsmith", *sys.argv[1:])

    def judge(options: Options, out: Path, *, resume: bool) -> Summary:
        return evaluate(
            options,
            out,
            seed=None if resume else seed,
            jobs=jobs,
            resume=resume,
            command=command,
            progress=progress,
        )

    return judge


def _require_prices(options: CampaignOptions, prices: Prices) -> None:
    names = (*options.models, *([options.advisor.model] if options.advisor is not None else []))
    unknown = [name for name in names if prices.of(name) is None]
    if options.budget.usd is not None and unknown:
        raise BadInput(f"a budget in usd needs the price of {', '.join(unknown)}: give it with --prices FILE")


def _print(summary: CampaignSummary, out: Path) -> None:
    table = Table("task", "accepted", "attempts", "first", "by", "K", "E", "% of bound", box=None)
    for name, task in summary.tasks.items():
        figures = (task.speedup_k, task.speedup_e, task.percent_of_floor)
        table.add_row(
            Text(one_line(name)),
            "yes" if task.accepted else "not judged" if task.not_judged else "no",
            str(task.attempts),
            "" if task.first_accepted is None else str(task.first_accepted + 1),
            Text(one_line(task.model or "")),
            *("" if figure is None else f"{figure:.2f}" for figure in figures),
        )
    console = Console()
    console.print(table)
    console.print((out / ATTEMPTS).read_text(encoding="utf-8"), markup=False, highlight=False, end="", soft_wrap=True)
    spent, again = summary.spent, summary.replayed
    lines = [
        (
            f"\n{summary.accepted} of {counted(len(summary.tasks), 'task')} have a kernel; "
            f"{spent.tokens:,} tokens, ${spent.usd:.2f}, {spent.device_s:.0f} s of judging and "
            f"{spent.last_judging_s:.0f} s of the last judging"
        )
    ]
    if summary.advisor is not None:
        lines.append(summary.advisor.in_words)
    if spent.cut_off:
        lines.append(spent.cut_off)
    waiting = [task.stopped for task in summary.tasks.values() if task.stopped and task.stopped.startswith("waits")]
    lines += [f"{one_line(why)}, then continue with --resume" for why in waiting]
    lines += [f"overrun: {line}" for line in summary.overruns]
    lines += [
        f"{one_line(name)}: {task.reason}"
        for name, task in summary.tasks.items()
        if task.reason is not None and task.not_judged is None
    ]
    lines += [f"void, and no model was asked: {one_line(task)}: {one_line(why)}" for task, why in summary.void.items()]
    if again is not None:
        lines.append(f"{again['judged']} kernels were judged again, {again['differ']} of them with other statuses")
    paths = [f"kernels: {one_line(str(out / KERNELS))}", f"page:    {one_line(str(out / PAGE))}"]
    reasons = [task.not_judged for task in summary.tasks.values() if task.not_judged]
    if reasons:
        lines.append(f"{len(reasons)} kernels were written and not judged: {reasons[0]}")
        paths.insert(1, f"not judged: {one_line(str(out / UNJUDGED))}")
    console.print("\n".join([*lines, *paths]), markup=False, highlight=False, soft_wrap=True)
