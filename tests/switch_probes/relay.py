"""Between workers and a switch: it passes packets on, writes them down, and mistreats them as it is told: it loses,
doubles, holds back, damages, and forges (another word, and a check that adds up)."""

import random
import select
import socket
import threading
import time

import playground  # noqa: F401  (puts bench/network on the path)
import wire

HOLD_S = 0.003  # how long a packet that is overtaken waits


class Relay:
    """Takes what comes to `host` at the switch's ports, and passes it to the switch; replies take the way back."""

    def __init__(self, switch_host, host, port, lanes=1, lose=0, double=0, hold=0, damage=0, forge=0, seed=1):
        self.switch_host, self.host, self.port = switch_host, host, port
        self.odds = {"lose": lose, "double": double, "hold": hold, "damage": damage, "forge": forge}
        self.chance = random.Random(seed)
        self.recorded = []  # (port, packet) of everything that workers sent
        self.inner = {}  # socket of a port here -> port
        self.outer = {}  # client -> socket towards the switch, one for all its ports, as the client has it
        self.held = []  # (when, send, packet)
        for one in range(port, port + lanes + 1):
            here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            here.bind((host, one))
            self.inner[here] = one
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run)

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for one in (*self.inner, *self.outer.values()):
            one.close()

    def _run(self):
        ports = {port: here for here, port in self.inner.items()}
        while not self.over.is_set():
            clients = {out: client for client, out in self.outer.items()}
            ready, _, _ = select.select([*self.inner, *clients], [], [], 0.002)
            for one in ready:
                try:
                    packet, sender = one.recvfrom(65536)
                except ConnectionError:
                    continue
                if one in self.inner:
                    target = (self.switch_host, self.inner[one])
                    self.recorded.append((target[1], packet))
                    out = self._towards(sender)
                    self._pass(packet, lambda packet, out=out, target=target: out.sendto(packet, target))
                else:
                    here = ports[sender[1]]
                    self._pass(packet, lambda packet, here=here, to=clients[one]: here.sendto(packet, to))
            due = [one for one in self.held if one[0] <= time.monotonic()]
            self.held = [one for one in self.held if one not in due]
            for _, send, packet in due:
                self._send(send, packet)

    def _towards(self, client):
        if client not in self.outer:
            self.outer[client] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.outer[client].bind(("127.0.0.1", 0))
        return self.outer[client]

    def _pass(self, packet, send):
        happens = {what: self.chance.random() < odds for what, odds in self.odds.items()}
        if happens["lose"]:
            return
        if happens["damage"]:
            at = self.chance.randrange(len(packet))
            packet = packet[:at] + bytes([packet[at] ^ (1 << self.chance.randrange(8))]) + packet[at + 1:]
        if happens["forge"] and packet[3] in (wire.DATA, wire.RESULT):
            packet = wire.with_check(packet[:-1] + bytes([packet[-1] ^ 1]))
        if happens["hold"]:
            self.held.append((time.monotonic() + HOLD_S, send, packet))
        else:
            self._send(send, packet)
        if happens["double"]:
            self._send(send, packet)

    @staticmethod
    def _send(send, packet):
        try:
            send(packet)
        except OSError:
            pass  # whoever it was for is gone
