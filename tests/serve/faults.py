#!/usr/bin/env python3
"""Clients that fail, beside clients that do not: faults.py PROGRAM [--seconds N] [--streams N].

Half of the time the healthy clients are alone, which is the baseline. Then readers that stall, senders that trickle and
streams that are reset come and go beside them, from a process of their own. `moracle bench serve` is the four healthy
clients whose times are taken; a fifth one compares the tokens. At the end: the healthy clients' tokens are those of the baseline, nothing runs, no descriptor and no memory is lost. Last,
many streams are open at once. Prints the figures as JSON.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import socket
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
        self.replies = {}

    async def healthy(self, i):
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
            ids += new
        writer.close()
        assert done and len(ids) == 24, (done, len(ids))
        if i in self.replies:
            assert self.replies[i] == ids, f"request {i} got other tokens beside faults"
        self.replies[i] = ids

    async def healthy_clients(self, program, requests, count=4):
        """Times of so many requests, and of one client more the tokens."""
        command = [program, "bench", "serve", "http://{}:{}".format(*self.address), "--json"]
        command += ["--clients", str(count), "--requests", str(requests), "--prompt", "8", "--generate", "24"]
        key = {"MORACLE_API_KEY": "key-of-healthy-clients"}
        bench = await asyncio.create_subprocess_exec(
            *command, "--temperature", "0.7", stdout=asyncio.subprocess.PIPE, env={**os.environ, **key}
        )
        output = asyncio.create_task(bench.communicate())
        compared = 0
        while not output.done():
            await self.healthy(compared % 64)
            compared += 1
        row = json.loads((await output)[0])["rows"][0]
        figures = {"requests": requests, "seconds": round(row["seconds"], 2), "compared": compared}
        for name in "inter_token_ms", "first_token_ms":
            for share in "p50", "p99":
                figures[f"{name[:-3]}_{share}_ms"] = round(row[name][share], 2)
        return figures

    async def some(self, count, clients=8):
        async def client(first):
            for i in range(first, count, clients):
                await self.healthy(i % 64)

        await asyncio.gather(*(client(i) for i in range(clients)))

    async def many(self, count):
        async def one(i):
            await self.healthy(1000 + i % 16)

        await asyncio.gather(*(one(i) for i in range(count)))


def break_off(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def fail(address, enough):
    """The clients that fail, until it is enough."""
    rng = random.Random(1)
    held = []
    for _ in range(STALLED):  # they ask and never read
        held.append(socket.create_connection(address))
        held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        held[-1].sendall(request_text(long_body(), "faulty"))
    slow = [socket.create_connection(address) for _ in range(TRICKLING)]
    for connection in slow:
        connection.setblocking(False)
    text = request_text(healthy_body(0))
    at, begun = 0, time.monotonic()
    while not enough.is_set():
        for connection in slow:
            with contextlib.suppress(OSError):  # the server has left it
                connection.send(text[at % 40 : at % 40 + 1])
        at += 1
        for _ in range(RESETS // 4):
            reset = socket.create_connection(address)
            reset.sendall(request_text(long_body(), "faulty"))
            time.sleep(rng.random() * 0.02)
            break_off(reset)
        time.sleep(max(0, begun + at / 4 - time.monotonic()))  # four rounds a second
    for connection in held + slow:
        connection.close()


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


async def work(served, arguments):
    load, pid = Load(served.url), served.process.pid
    for i in range(64):
        await load.healthy(i)
    trial = await load.healthy_clients(arguments.program, 64)
    requests = max(16, int(trial["requests"] / trial["seconds"] * arguments.seconds / 2))
    figures = {"quiet": await load.healthy_clients(arguments.program, requests)}
    assert served.rests()
    before = descriptors(pid)
    enough = multiprocessing.Event()
    faults = multiprocessing.Process(target=fail, args=(load.address, enough), daemon=True)
    faults.start()
    figures["beside_faults"] = await load.healthy_clients(arguments.program, requests)
    enough.set()
    faults.join()
    assert faults.exitcode == 0, "the clients that fail failed themselves"
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
