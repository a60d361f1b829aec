"""The OpenVINO worker process as the server's event loop sees it."""

import asyncio
import itertools
import multiprocessing
import queue
import sys
import threading

from speedstudy.engines.openvino_messages import Cancel, Dead, Ready, Refused, Step, Submit
from speedstudy.engines.openvino_options import WorkerOptions
from speedstudy.engines.openvino_protocol import CompletionRequest
from speedstudy.engines.openvino_worker import run_worker


class EngineFailed(Exception):
    """The worker process failed or ended; the message says why."""


class Worker:
    """The engine process as the event loop sees it: requests in, one queue of news a request."""

    def __init__(self, options: WorkerOptions) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=run_worker, args=(theirs, options), daemon=True)
        self._process.start()
        theirs.close()  # so that the worker's end is an EOF here
        self._outbox: queue.SimpleQueue[Submit | Cancel] = queue.SimpleQueue()
        self._news: dict[int, asyncio.Queue[Step | Refused | EngineFailed]] = {}
        self._ids = itertools.count()
        self.failure: str | None = None

    def wait_ready(self) -> None:
        """Block until the pipeline is built.

        Raises:
            EngineFailed: It could not be built.
        """
        try:
            message = self._connection.recv()
        except EOFError:
            self._process.join()
            message = Dead(message=f"exit status {self._process.exitcode} while loading")
        if not isinstance(message, Ready):
            raise EngineFailed(message.message)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver news on ``loop`` from now on."""
        loop.add_reader(self._connection.fileno(), self._receive, loop)
        # The worker reads only between steps, so a long prompt can block the sender.
        threading.Thread(target=self._send, name="to-worker", daemon=True).start()

    def open(
        self, request: CompletionRequest
    ) -> tuple[int, asyncio.Queue[Step | Refused | EngineFailed]]:
        """Hand a request to the engine; return its id and the queue of what it gives.

        Raises:
            EngineFailed: The engine has failed.
        """
        if self.failure is not None:
            raise EngineFailed(self.failure)
        request_id = next(self._ids)
        news: asyncio.Queue[Step | Refused | EngineFailed] = asyncio.Queue()
        self._news[request_id] = news
        self._outbox.put(
            Submit(
                request_id=request_id,
                prompt=request.prompt,
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                seed=request.seed,
                ignore_eos=request.ignore_eos,
            )
        )
        return request_id, news

    def close(self, request_id: int, *, finished: bool) -> None:
        """Forget a request; one that is not finished is cancelled in the engine."""
        del self._news[request_id]
        if not finished:
            self._outbox.put(Cancel(request_id=request_id))

    def end(self) -> None:
        """End the process; nothing in it is worth saving."""
        self._process.kill()
        self._process.join()

    def _send(self) -> None:
        while True:
            message = self._outbox.get()
            try:
                self._connection.send(message)
            except (BrokenPipeError, ConnectionResetError):
                return  # the reader hears of it as well

    def _receive(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            message = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            message = Dead(message=f"exit status {self._process.exitcode}")
        if isinstance(message, Dead):
            loop.remove_reader(self._connection.fileno())
            self.failure = f"the OpenVINO engine failed: {message.message}"
            print(f"openvino server: {self.failure}", file=sys.stderr, flush=True)
            for news in self._news.values():
                news.put_nowait(EngineFailed(self.failure))
            return
        for item in message:
            news_of_request = self._news.get(item.request_id)
            if news_of_request is not None:  # else cancelled while the step ran
                news_of_request.put_nowait(item)
