"""A campaign: task -> prompt -> reply -> kernel -> judgement -> next attempt, for many tasks side by side.

Everything that a campaign does follows from its options, from the replies and from the judgements, and these are in the
journal. So to take one up again is to run it again: what is known is not asked twice.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from opsmith.backends.file import KernelFile
from opsmith.core.case import digest
from opsmith.core.kernel import Kernel
from opsmith.core.op import version_file
from opsmith.core.run import Options, write_atomically
from opsmith.core.task import Task
from opsmith.errors import BadInput, UsageError
from opsmith.generate import metal_syntax
from opsmith.generate.admission import Admission, Place, Stopped
from opsmith.generate.advisor.counsel import AdvisorOptions, Counsel, subject_of
from opsmith.generate.advisor.hints import fates, told_to_writer
from opsmith.generate.advisor.rounds import AdvisedRounds
from opsmith.generate.attempt import NOT_JUDGED_HERE, Advice, Attempt, Move, Outcome, best
from opsmith.generate.background import Background
from opsmith.generate.budget import Amount, Budget, Exhausted, Prices
from opsmith.generate.chat import ChatModel, KernelAuthor, Message, NoReply, Reply, Request, Role, TaskAuthor, asked
from opsmith.generate.contexts import References, Setting
from opsmith.generate.journal import Exchange, Journal, State
from opsmith.generate.op_facts import OpFacts
from opsmith.generate.prompt import conversation, entry_point
from opsmith.generate.redaction import Redaction
from opsmith.generate.reply import NoCode, kernel_source
from opsmith.generate.review_gate import ReviewGate, WaitsForPerson
from opsmith.generate.strategies import strategy_named
from opsmith.session import AskedTask, Judged, Session, Watch

#: Seconds after which the journal is told again how long what is being judged has taken: a kill loses so many.
TELLING_S = 1.0
#: Is told of each attempt once it is made.
Told = Callable[[Attempt, AskedTask], None]


class CutShort(KeyboardInterrupt):
    """A campaign was interrupted twice: what was sent is not waited for.

    Args:
        under_way: how many attempts.
    """

    def __init__(self, under_way: int) -> None:
        self.under_way = under_way
        super().__init__(under_way)


class CampaignOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign is asked.

    Attributes:
        judging: what kernels are asked, and how strictly.
        models: who writes, by name.
        strategy: by name.
        attempts: of each model for a task, at most; the rounds of a beam.
        dsl: what kernels are written in.
        contexts: names of what models are told.
        references: folder of kernels that they may be shown, or None.
        references_hash: of its files.
        temperature: of sampling; None leaves it to the model.
        max_tokens: of a reply.
        budget: what may be spent.
        most_judging_s: seconds that an attempt's kernel may run while it is judged.
        advisor: who gives writers hints; None without.
        review_after: failed attempts after which a person is asked, as at an accepted kernel; None: nobody is.
    """

    judging: Options
    models: tuple[str, ...]
    strategy: str
    attempts: int
    dsl: str
    contexts: tuple[str, ...]
    references: str | None
    references_hash: str | None = None
    temperature: float | None
    max_tokens: int
    budget: Budget
    most_judging_s: float
    advisor: AdvisorOptions | None = None
    review_after: int | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the campaign's results; one that is taken up again must ask for the same.

        Not where things lie, of which contents are hashed, nor what may be spent: a campaign can be moved, and go on
        with another budget.
        """
        record: dict[str, Any] = msgspec.to_builtins(self)
        del record["budget"], record["references"]
        if self.advisor is None:
            del record["advisor"]  # As in journals that know of none.
        else:
            del record["advisor"]["share"]
        if self.review_after is None:
            del record["review_after"]  # As before there were reviews.
        del record["judging"]["backend"], record["judging"]["selection"]["dataset"]
        if self.judging.selection.problems_hash is not None:
            del record["judging"]["selection"]["problems"]
        return record


class TaskHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one task.

    Attributes:
        task: its name.
        attempts: in the order of their index.
        stopped: why it was not pursued to the end of its strategy, in one line, or None.
    """

    task: str
    attempts: tuple[Attempt, ...]
    stopped: str | None


class Campaign:
    """Runs a campaign; see the module's docstring.

    Args:
        options: of the campaign.
        models: those of the options, in their order.
        advisor: that of the options.
        session: judges kernels.
        journal: of the campaign.
        prices: of the models.
        facts: op -> what torch says about it.
        background: task -> what was found out about it.
        out: the campaign's directory; attempts are written to ``attempts/`` in it.
        told: is told of every attempt.
        offline: ask nobody, and judge every kernel again: what is not in the journal ends a task.
        waiting: is told, where the campaign is interrupted, how many attempts under way are waited for.

    Attributes:
        gate: stops tasks for a person; None in a campaign without reviews.
        judged_again: of an offline campaign: kernel -> whether its cases have the statuses of the journal.
    """

    def __init__(
        self,
        options: CampaignOptions,
        models: Sequence[ChatModel | TaskAuthor],
        session: Session,
        journal: Journal,
        *,
        prices: Prices,
        facts: Mapping[str, OpFacts],
        background: Mapping[str, Background],
        out: Path,
        told: Told,
        advisor: ChatModel | None = None,
        offline: bool = False,
        waiting: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._options = options
        self._models = models
        self._session = session
        self._journal = journal
        self._prices = prices
        self._facts = facts
        self._background = background
        self._out = out
        self._told = told
        self._offline = offline
        self._waiting = waiting
        self._redaction = Redaction.of_environment()
        self.judged_again: dict[str, bool] = {}
        self._references = None if options.references is None else References(Path(options.references))
        self._things = _Once()
        self._counsel: Counsel | None = None
        if options.advisor is not None:
            assert advisor is not None, "who is asked for hints"
            self._counsel = Counsel(
                options.advisor,
                advisor,
                journal,
                contexts=options.contexts,
                max_tokens=options.max_tokens,
                temperature=options.temperature,
            )
        after = options.review_after
        self.gate = None if after is None else ReviewGate(out, after, options.judging.suite)
        self._strategy = strategy_named(
            options.strategy,
            members=len(models),
            attempts=options.attempts,
            timed=options.judging.timing != "off",
        )

    def run(self, *, tasks_at_a_time: int, exchanges_at_a_time: int) -> list[TaskHistory]:
        """Pursue every task of the session.

        Raises:
            UsageError: a model cannot be used at all.
            KeyboardInterrupt: the campaign was interrupted; what was under way is settled.
            CutShort: it was interrupted twice; what was under way is not settled.
        """
        tasks, limited = list(self._session.tasks.values()), self._options.budget.is_limited
        self._admission = Admission(
            self._journal,
            self._options.budget,
            tasks=len(tasks),
            judging_s=self._options.most_judging_s,
            at_a_time=exchanges_at_a_time,
            offline=self._offline,
        )
        # With a budget each task waits for its turn, so none may wait for a thread.
        pursuing = ThreadPoolExecutor(len(tasks) if limited else tasks_at_a_time, thread_name_prefix="task")
        asking = ThreadPoolExecutor(exchanges_at_a_time, thread_name_prefix="exchange")
        self._rounds = AdvisedRounds(
            self._counsel,
            self._admission,
            self._options.budget,
            self._prices,
            self._exchange,
            asking,
        )
        try:
            futures = [pursuing.submit(self._pursue, number, task, asking) for number, task in enumerate(tasks)]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            except KeyboardInterrupt:
                self._waiting(self._admission.stop())
                raise
            finally:
                under_way = self._admission.stop()
                try:
                    wait(futures)
                except KeyboardInterrupt:
                    raise CutShort(under_way) from None
            return [future.result() for future in futures]
        finally:
            pursuing.shutdown(wait=False, cancel_futures=True)
            asking.shutdown(wait=False, cancel_futures=True)

    def _pursue(self, number: int, task: AskedTask, asking: ThreadPoolExecutor) -> TaskHistory:
        attempts: list[Attempt] = []
        made: list[Future[Attempt]] = []
        stopped = None
        try:
            while stopped is None and (moves := self._moves(task, attempts)):
                first, round_number = len(attempts), attempts[-1].round + 1 if attempts else 0
                made = []
                heeding = [move for move in moves if self._heeds_advice(task, move, attempts)]
                subjects = map(subject_of, heeding)
                advice = self._rounds.advice(round_number, number, self._setting(task), subjects, attempts)
                for index, move in enumerate(moves, start=first):
                    place = (self._rounds.writing(round_number), number, index - first)
                    advised = advice.get(subject_of(move)) if move in heeding else None
                    request = self._request(task, move, attempts, advised)
                    try:
                        known = self._admission.enter(place, request, self._most(request, move))
                    except Exhausted as exc:
                        stopped = str(exc)
                        break
                    draft = Attempt(
                        index=index,
                        round=round_number,
                        move=move,
                        model=self._models[move.member].name,
                        exchange=request.key,
                        outcome=Outcome.NO_REPLY,
                        advice=advised,
                    )
                    made.append(asking.submit(self._attempt, place, task, draft, request, known))
                self._admission.expect((self._rounds.first(round_number + 1), number, 0))
                wait(made)
                for future in made:
                    try:
                        attempts.append(future.result())
                    except Exhausted as exc:
                        stopped = str(exc)
                self._journal.keep_hints(task.name, fates(attempts))
        except Stopped:
            stopped = "the campaign was interrupted"
        except WaitsForPerson as exc:
            stopped = str(exc)
        finally:
            wait(made)
            self._admission.leave(number)
        return TaskHistory(task=task.name, attempts=tuple(attempts), stopped=stopped)

    def _heeds_advice(self, task: AskedTask, move: Move, attempts: Sequence[Attempt]) -> bool:
        """Whether a writer can be told hints. What it was asked when there were none is not asked again with some."""
        if self._counsel is None or isinstance(self._models[move.member], TaskAuthor):
            return False
        return self._journal.exchange(self._request(task, move, attempts, None).key) is None

    def _moves(self, task: AskedTask, attempts: list[Attempt]) -> Sequence[Move]:
        """What the strategy wants next, given what people said; nothing once they approved a kernel."""
        if self.gate is not None and self.gate.pass_through(task, attempts):
            return ()
        return self._strategy.moves(attempts)

    def _most(self, request: Request, move: Move) -> Amount:
        if isinstance(self._models[move.member], TaskAuthor):
            return Amount(0.0, 0)
        return self._prices.most(request)

    def _attempt(
        self, place: Place, task: AskedTask, attempt: Attempt, request: Request, known: Exchange | None
    ) -> Attempt:
        """Finish an attempt that was admitted: ask unless that is known, and judge what came of it."""
        try:
            model = self._models[attempt.move.member]
            ask = partial(self._written, model, task) if isinstance(model, TaskAuthor) else partial(asked, model)
            exchange = known or self._exchange(request, ask)
            if exchange.state is State.LOST:
                attempt = msgspec.structs.replace(attempt, outcome=Outcome.LOST)
            attempt = msgspec.structs.replace(attempt, problem=exchange.problem)
            if exchange.reply is not None:
                attempt = self._with_kernel(attempt, task, exchange.reply)
        finally:
            self._admission.leave_room(place)
        self._told(attempt, task)
        return attempt

    def _request(self, task: AskedTask, move: Move, earlier: Sequence[Attempt], advice: Advice | None) -> Request:
        options, model = self._options, self._models[move.member]
        if isinstance(model, TaskAuthor):
            word = Message(Role.USER, f"{task.name} in {options.dsl} for {self._session.options.device}")
            known = self._to_vary(task, move, earlier) if isinstance(model, KernelAuthor) else ()
            told = (word, *known)
            return Request(model=model.name, messages=told, max_tokens=0, temperature=None, number=move.number)
        shown = [earlier[place] for place in move.shown]
        messages = conversation(
            self._setting(task),
            options.contexts,
            shown,
            policy=options.judging.policy,
            own_model=model.name,
            crosses=move.crosses,
            more=told_to_writer(advice.hints) if advice is not None else "",
        )
        return Request(
            model=model.name,
            messages=messages,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            number=move.number,
        )

    def _to_vary(self, task: AskedTask, move: Move, earlier: Sequence[Attempt]) -> tuple[Message, ...]:
        """The best right kernel of those that are shown, or else the one among the references; and what was tried."""
        shown = best([earlier[place] for place in move.shown if earlier[place].accepted])
        source = shown.source if shown is not None else None
        if source is None and self._references is not None:
            source = self._references.same(task)
        if source is None:
            return ()
        tried = sorted({digest(attempt.source.encode()) for attempt in earlier if attempt.source is not None})
        return Message(Role.ASSISTANT, source), Message(Role.USER, " ".join(tried))

    def _setting(self, task: AskedTask) -> Setting:
        return Setting(
            task=task,
            dsl=self._options.dsl,
            environment=self._session.environment,
            facts=self._facts.get(task.name),
            reference=self._references.same(task) if self._references else None,
            similar=self._references.similar(task) if self._references else None,
            background=self._background.get(task.name, Background()),
        )

    def _exchange(self, request: Request, ask: Callable[[Request], Reply]) -> Exchange:
        """Ask what was admitted, and settle it."""
        try:
            reply = ask(request)
        except NoReply as exc:
            self._journal.failed(request, self._clean(str(exc)), free=not exc.may_have_cost)
        except UsageError as exc:
            problem = self._clean(str(exc))
            self._journal.refused(request, problem)
            raise exc if problem == str(exc) else BadInput(problem) from None
        else:
            cost = None if reply.usage is None else self._prices.cost(request.model, reply.usage)
            reply = msgspec.structs.replace(reply, text=self._clean(reply.text))
            self._journal.answered(request, reply, cost)
        found = self._journal.exchange(request.key)
        assert found is not None, "what was begun is in the journal"
        return found

    def _clean(self, text: str) -> str:
        """Text of a stranger that can be written: UTF-8, and without secrets."""
        return self._redaction.of(text.encode(errors="replace").decode())

    def _written(self, author: TaskAuthor, task: AskedTask, request: Request) -> Reply:
        device = self._session.options.device
        if isinstance(author, KernelAuthor) and len(request.messages) > 1:
            _, shown, tried = request.messages
            return author.vary(shown.text, tried.text.split(), dsl=self._options.dsl, number=request.number)
        calls = self._session.calls(task.name)
        return author.write(task.op, calls, dsl=self._options.dsl, device=device, number=request.number)

    def _with_kernel(self, attempt: Attempt, task: AskedTask, reply: Reply) -> Attempt:
        name = entry_point(task)
        try:
            source = kernel_source(reply.text, name, complete=reply.complete)
        except NoCode as exc:
            return msgspec.structs.replace(attempt, outcome=Outcome.NO_CODE, problem=str(exc))
        file = attempt_file(task, attempt.index)
        _write(self._out / file, source)
        attempt = msgspec.structs.replace(attempt, file=str(file), source=source)
        reason = NOT_JUDGED_HERE.get(self._options.dsl)
        if reason is not None:
            read = metal_syntax.verdict(source) if self._options.dsl == "metal" else None
            reason = f"{reason}; {read}" if read else reason
            return msgspec.structs.replace(attempt, outcome=Outcome.NOT_JUDGED, problem=reason)
        if self._admission.stopped:
            raise Stopped  # The reply is in the journal, and is judged when the campaign goes on.
        judged = self._judge(task, source)
        return msgspec.structs.replace(attempt, outcome=Outcome.JUDGED, problem=None, judged=judged)

    def _judge(self, task: AskedTask, source: str) -> Judged:
        # Equal sources are one kernel, whoever wrote them.
        path = self._out / "judged" / digest(f"{task.name} {source}".encode()) / "kernel.py"
        _write(path, source)
        kernel = KernelFile(path).kernel_for(Task(name=task.name, op=task.op, suite=self._options.judging.suite))
        assert kernel is not None, "the source defines what the task asks for"
        with self._things.alone(kernel.content_hash):
            known = self._journal.judgement(task.name, kernel.content_hash)
            most_s = self._options.most_judging_s
            if known is None:
                if self._offline:
                    raise Exhausted(f"the journal does not hold the judgement of {kernel.content_hash}")
                number = self._journal.begin_judging(task.name, kernel.content_hash, most_s)
                with self._watched(number) as watch:
                    known = self._session.judge_kernel(task.name, kernel, most_s=most_s, watch=watch)
                self._journal.judged(known)
            elif self._offline and kernel.content_hash not in self.judged_again:
                again = self._session.judge_kernel(task.name, kernel, most_s=most_s)
                self.judged_again[kernel.content_hash] = again.summary.statuses == known.summary.statuses
            if self._counsel is not None and not self._offline:
                self._look(task, kernel, known)
        return known

    def _look(self, task: AskedTask, kernel: Kernel, judged: Judged) -> None:
        """Write down what an advisor is shown of a kernel, in what is left of the seconds that it may be judged."""
        left_s = self._options.most_judging_s - judged.device_s
        if left_s <= 0 or self._journal.evidence(task.name, kernel.content_hash) is not None:
            return
        watch = Watch()
        found = self._session.look(task.name, kernel, judged, most_s=left_s, watch=watch)
        self._journal.keep_evidence(task.name, kernel.content_hash, found, watch.seconds)

    @contextlib.contextmanager
    def _watched(self, number: int) -> Iterator[Watch]:
        """The watch of a judgement, which the journal is told of until that ends."""
        watch, ended = Watch(), threading.Event()

        def tell() -> None:
            with contextlib.suppress(BadInput, sqlite3.ProgrammingError):  # Full, or closed: who settles it says so.
                while not ended.wait(TELLING_S):
                    self._journal.judging({number: watch.seconds})

        telling = threading.Thread(target=tell, daemon=True, name=f"watch {number}")
        telling.start()
        try:
            yield watch
        finally:
            ended.set()
            telling.join()


def _write(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, source.encode())


class _Once:
    """Lets one thread at a time deal with a thing, by its name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def alone(self, name: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(name, threading.Lock())


def attempt_file(task: AskedTask, index: int) -> Path:
    """Where an attempt's kernel lies in a campaign's directory, named as the public layouts name versions."""
    if task.op.kind.of_problems:
        return Path("attempts") / task.name / f"sample_{index}" / f"{task.name.rpartition('/')[2]}.py"
    return Path("attempts") / version_file(task.name, index + 1)
