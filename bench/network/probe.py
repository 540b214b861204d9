"""Measures what the links really carry: every host sends to the next one, all at once, so that every link is full in
both directions. `python3 probe.py receive ADDRESS` and `send ADDRESS BYTES` run inside the hosts."""

import socket
import subprocess
import sys
import time

PORT = 7701
SECONDS = 0.5  # of sending at the full rate: long enough that the burst and TCP's start do not show
SETTLE = 0.1  # share of the bytes that is not timed


def receive(address):
    with socket.create_server((address, PORT)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        with connection:
            total = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "big")
            start, settled, got = 0.0, 0, 0
            buffer = bytearray(1 << 18)
            while got < total:
                count = connection.recv_into(buffer)
                if count == 0:
                    break
                got += count
                if not settled and got >= SETTLE * total:
                    start, settled = time.monotonic(), got
            print(8 * (got - settled) / (time.monotonic() - start), flush=True)


def send(address, count):
    with socket.create_connection((address, PORT)) as connection:
        connection.sendall(count.to_bytes(8, "big"))
        block = bytes(1 << 18)
        for done in range(0, count, len(block)):
            connection.sendall(block[: count - done])
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # until the other end has closed


def measure(names, addresses, rate_bits):
    """Bits per second that arrived at each host."""
    def start(name, *words):
        return subprocess.Popen(["ip", "netns", "exec", name, sys.executable, __file__, *words], text=True,
                                stdout=subprocess.PIPE, start_new_session=True)

    receivers = [start(name, "receive", address) for name, address in zip(names, addresses)]
    senders = []
    try:
        for receiver in receivers:
            receiver.stdout.readline()
        count = str(int(rate_bits / 8 * SECONDS))
        targets = addresses[1:] + addresses[:1]
        senders = [start(name, "send", target, count) for name, target in zip(names, targets)]
        return [float(receiver.communicate(timeout=30)[0] or 0) for receiver in receivers]
    finally:
        for process in receivers + senders:
            process.terminate() if process.poll() is None else None
            process.wait()


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2])
    else:
        send(sys.argv[2], int(sys.argv[3]))
