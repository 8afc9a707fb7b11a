"""The process of a lane on this machine: ``python -m opsmith.runner.executors.lane_process FD ...``, one FD a slot."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection

from opsmith.devices import kind_of, names
from opsmith.runner.executors.lane_host import LaneHost
from opsmith.runner.executors.messages import decode_request, encode
from opsmith.runner.sandbox.kernel_calls import die_with_parent


def main() -> None:
    """Answer on every connection until the run closes them."""
    die_with_parent(signal.SIGKILL)
    connections = [Connection(int(descriptor)) for descriptor in sys.argv[1:]]
    host = LaneHost(_say_that_it_waits)
    try:
        with contextlib.suppress(OSError, EOFError):  # Nobody asks any more.
            # The first request opens the lane. Its processes end with the thread that has started them: with this one.
            # The threads of the other slots keep to the processors that this one has kept to by then.
            _answer(host, 0, connections[0])
            for slot, connection in enumerate(connections[1:], start=1):
                threading.Thread(target=_serve, args=(host, slot, connection), daemon=True).start()
            _serve(host, 0, connections[0])
    finally:
        host.close()


def _serve(host: LaneHost, slot: int, connection: Connection) -> None:
    with contextlib.suppress(OSError, EOFError):
        while True:
            _answer(host, slot, connection)


def _answer(host: LaneHost, slot: int, connection: Connection) -> None:
    for reply in host.answer(slot, decode_request(connection.recv_bytes())):
        connection.send_bytes(encode(reply))


def _say_that_it_waits(seconds: float) -> None:
    variables = (kind_of(name).visible_variable or "" for name in names())
    device = next((os.environ[each] for each in variables if each in os.environ), "the CPU")
    sys.stderr.write(f"opsmith: other runs time on {device} or fill its memory; waiting ({seconds:.0f} s so far)\n")


if __name__ == "__main__":
    main()
