"""The store of a process group, asked with a limit.

A TCPStore answers as fast as the process in which it lives, and most of its calls wait for that without a time-out: if
that process is stopped, so is everybody who asks it anything. So a thread of its own asks, and whoever wants to know
waits for the answer as long as he likes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import torch.distributed as dist

from .errors import TransportFailed

_LIMIT = 5.0  # seconds
_PATIENCE = 1.0  # seconds, for the end of the thread

Answer = TypeVar("Answer")


Questions = queue.SimpleQueue  # of pairs of a question and the future of its answer; None ends the thread


class Asker:
    """The thread, from the first question to stop(), and again from the next question on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: Questions | None = None  # of the thread, while there is one
        self._thread: threading.Thread | None = None
        self._unanswered: Future | None = None  # for which somebody has waited in vain

    def ask(self, question: Callable[[], Answer], limit: float = _LIMIT) -> Answer:
        """Raises TransportFailed if there is no answer within the limit; at once while an earlier one is missing."""
        if self._unanswered is not None and not self._unanswered.done():
            raise TransportFailed(_SILENT)
        answer: Future = Future()
        with self._lock:
            if self._questions is None:
                self._questions = queue.SimpleQueue()
                arguments = (self._questions,)
                self._thread = threading.Thread(target=_answer, args=arguments, name="peelreduce-store", daemon=True)
                self._thread.start()
            self._questions.put((question, answer))
        try:
            return answer.result(limit)
        except TimeoutError:
            if answer.done():
                return answer.result()
            self._unanswered = answer
            raise TransportFailed(_SILENT) from None

    def stop(self) -> None:
        """After what was asked, for which it does not wait long."""
        with self._lock:
            questions, self._questions = self._questions, None
            thread, self._thread = self._thread, None
        if questions is not None and thread is not None:
            questions.put(None)
            if thread is not threading.current_thread():
                thread.join(_PATIENCE)


def _answer(questions: Questions) -> None:
    while (asked := questions.get()) is not None:
        question, answer = asked
        try:
            answer.set_result(question())
        except BaseException as error:  # noqa: BLE001: it is the answer
            answer.set_exception(error)
        del asked, question, answer


class Store:
    """A part of the store, under a prefix."""

    def __init__(self, store: dist.Store, asker: Asker) -> None:
        self.plain = store  # for what connects itself by a store, and has time-outs
        self._asker = asker

    def under(self, prefix: str) -> Store:
        return Store(dist.PrefixStore(prefix, self.plain), self._asker)

    def rest(self) -> None:
        """Nothing will be asked for a while."""
        self._asker.stop()

    def set(self, key: str, value: str) -> None:
        self._asker.ask(lambda: self.plain.set(key, value))

    def add(self, key: str, amount: int) -> int:
        return self._asker.ask(lambda: self.plain.add(key, amount))

    def set_once(self, key: str, value: str) -> str:
        """What is there then: the first value that anybody set."""
        return self._asker.ask(lambda: self.plain.compare_set(key, "", value)).decode()

    def find(self, key: str) -> str | None:
        return self._asker.ask(lambda: self.plain.get(key).decode() if self.plain.check([key]) else None)

    def get_all(self, keys: list[str]) -> list[str]:
        """Of keys that are there."""
        return [one.decode() for one in self._asker.ask(lambda: self.plain.multi_get(keys))]


_SILENT = (
    "The store of the process group does not answer: the process in which it lives, mostly that of worker 0, is gone or "
    "stands still."
)
