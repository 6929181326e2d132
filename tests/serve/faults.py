#!/usr/bin/env python3
"""Clients that fail, beside clients that do not: faults.py PROGRAM [--seconds N] [--streams N].

Half of the time the healthy clients are alone, which is the baseline. Then readers that stall, senders that trickle and
streams that are reset come and go beside them. At the end: the healthy clients' tokens are those of the baseline, nothing
runs, no descriptor and no memory is lost. Last, many streams are open at once. Prints the figures as JSON.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import socket
import statistics
import struct
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from served import Served

STALLED, TRICKLING, RESETS = 100, 50, 20  # RESETS a second


KEYS = "healthy:key-of-healthy-clients\nfaulty:key-of-faulty-clients\n"


def request_text(body, key="healthy", path="/v1/completions"):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"x-api-key: key-of-{key}-clients\r\n"
    return head.encode() + f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data


def healthy_body(i):
    return {
        "prompt": f"{i} one two three four five",
        "max_tokens": 24,
        "seed": i,
        "temperature": 0.7,
        "stream": True,
        "ignore_eos": True,
        "return_token_ids": True,
    }


def long_body():
    return {"prompt": "a b c d", "max_tokens": 1500, "stream": True, "ignore_eos": True, "n": 2}


class Load:
    def __init__(self, url):
        parts = urllib.parse.urlparse(url)
        self.address = (parts.hostname, parts.port)
        self.gaps, self.firsts, self.replies = [], [], {}

    async def healthy(self, i, record=True):
        begun = last = time.monotonic()
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(request_text(healthy_body(i)))
        ids, done = [], False
        async for line in reader:
            if line.startswith(b"data: [DONE]"):
                done = True
            if not line.startswith(b"data: {"):
                continue
            new = json.loads(line[6:])["choices"]
            new = new[0].get("token_ids", []) if new else []
            if new:
                now = time.monotonic()
                if record:
                    (self.gaps if ids else self.firsts).append(now - last if ids else now - begun)
                last = now
                ids += new
        writer.close()
        assert done and len(ids) == 24, (done, len(ids))
        if i in self.replies:
            assert self.replies[i] == ids, f"request {i} got other tokens beside faults"
        self.replies[i] = ids

    async def healthy_clients(self, seconds, count=4):
        async def client(first):
            i, deadline = first, time.monotonic() + seconds
            while time.monotonic() < deadline:
                await self.healthy(i)
                i = first + (i - first + count) % 64

        self.gaps, self.firsts = [], []
        await asyncio.gather(*(client(i) for i in range(count)))
        gaps = sorted(self.gaps)
        return {
            "replies": len(self.firsts),
            "inter_token_p99_ms": round(1000 * gaps[int(0.99 * (len(gaps) - 1))], 2),
            "first_token_p99_ms": round(1000 * sorted(self.firsts)[int(0.99 * (len(self.firsts) - 1))], 2),
            "inter_token_median_ms": round(1000 * statistics.median(gaps), 2),
        }

    def connect(self):
        return socket.create_connection(self.address)

    async def faults(self, seconds, rng):
        held = []
        for _ in range(STALLED):  # they ask and never read
            held.append(self.connect())
            held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            held[-1].sendall(request_text(long_body(), "faulty"))
            await asyncio.sleep(0)
        slow = [self.connect() for _ in range(TRICKLING)]
        for connection in slow:
            connection.setblocking(False)
        text = request_text(healthy_body(0))
        at, deadline = 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            for connection in slow:
                try:
                    connection.send(text[at % 40 : at % 40 + 1])
                except OSError:
                    pass  # the server has left it
            at += 1
            for _ in range(RESETS // 4):
                reset = self.connect()
                reset.sendall(request_text(long_body(), "faulty"))
                await asyncio.sleep(rng.random() * 0.02)
                reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                reset.close()
            await asyncio.sleep(0.2)
        for connection in held + slow:
            connection.close()

    async def some(self, count, clients=8):
        async def client(first):
            for i in range(first, count, clients):
                await self.healthy(i % 64, record=False)

        await asyncio.gather(*(client(i) for i in range(clients)))

    async def many(self, count):
        async def one(i):
            await self.healthy(1000 + i % 16, record=False)

        await asyncio.gather(*(one(i) for i in range(count)))


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


async def work(served, arguments):
    load, rng, pid = Load(served.url), random.Random(1), served.process.pid
    for i in range(64):
        await load.healthy(i, record=False)
    figures = {"quiet": await load.healthy_clients(arguments.seconds / 2)}
    assert served.rests()
    before = descriptors(pid)
    faults = asyncio.create_task(load.faults(arguments.seconds / 2, rng))
    figures["beside_faults"] = await load.healthy_clients(arguments.seconds / 2)
    await faults
    assert served.rests(), "requests of clients that left still run"
    deadline = time.monotonic() + 15
    while descriptors(pid) > before and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    assert descriptors(pid) <= before, (before, descriptors(pid))
    rest = resident(pid)
    many = asyncio.create_task(load.many(arguments.streams))
    most = rest
    while not many.done():
        most = max(most, resident(pid))
        await asyncio.sleep(0.05)
    await many
    figures["bytes_a_stream"] = (most - rest) // arguments.streams
    assert served.rests()
    await load.some(64)
    begin = resident(pid)
    await load.some(arguments.requests)
    figures["resident_change"] = round(resident(pid) / begin - 1, 4)
    figures["resident_bytes"] = resident(pid)
    print(json.dumps(figures, indent=1))
    assert figures["bytes_a_stream"] <= 65536, figures
    assert abs(figures["resident_change"]) <= arguments.resident, figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--resident", type=float, default=0.02, help="share by which memory may change over requests")
    arguments = parser.parse_args()
    options = ["--batch-invariant=on", "--max-queue=4096", "--per-key-running=16", "--api-key-file"]
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write(KEYS)
        keys.flush()
        with Served(arguments.program, *options, keys.name, key="key-of-healthy-clients") as served:
            asyncio.run(work(served, arguments))
            assert served.end() == 0


if __name__ == "__main__":
    main()
