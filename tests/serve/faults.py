#!/usr/bin/env python3
"""Clients that fail, beside clients that do not: faults.py PROGRAM [--seconds N] [--streams N] [--requests N].

Healthy clients are alone for so many seconds, which is the baseline. As long again they are beside readers that stall,
senders that trickle and streams that are reset, of a process of its own, which comes again with each that the server ends.
`moracle bench serve` is the four healthy clients whose times are taken; a fifth one compares the tokens. At the end: the
healthy clients' tokens are those of the baseline, nothing runs, no descriptor and no memory is lost. Last, many streams are
open at once. Prints the figures as JSON.
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
STALLED_S = 50  # what a reader that stalls waits: the server has ended it by then, 30 s behind the last byte taken
TOKENS = 24  # of a reply

KEYS = "healthy:key-of-healthy-clients\nfaulty:key-of-faulty-clients\n"


def request_text(body, key="healthy", path="/v1/completions"):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"x-api-key: key-of-{key}-clients\r\n"
    return head.encode() + f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data


def healthy_body(i, tokens=TOKENS):
    return {
        "prompt": f"{i} one two three four five",
        "max_tokens": tokens,
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
        self.comments = 0  # that keep silent streams alive

    async def healthy(self, i, tokens=TOKENS):
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(request_text(healthy_body(i, tokens)))
        ids, done = [], False
        async for line in reader:
            if line.startswith(b"data: [DONE]"):
                done = True
            self.comments += line.startswith(b": keep-alive")
            if not line.startswith(b"data: {"):
                continue
            new = json.loads(line[6:])["choices"]
            new = new[0].get("token_ids", []) if new else []
            ids += new
        writer.close()
        assert done and len(ids) == tokens, (done, len(ids))
        if i in self.replies:
            assert self.replies[i] == ids, f"request {i} got other tokens beside faults"
        self.replies[i] = ids

    async def bench(self, program, requests, count=4):
        """The row of so many requests, and how many of one client more were compared."""
        command = [program, "bench", "serve", "http://{}:{}".format(*self.address), "--json"]
        command += ["--clients", str(count), "--requests", str(requests), "--prompt", "8", "--generate", str(TOKENS)]
        key = {"MORACLE_API_KEY": "key-of-healthy-clients"}
        bench = await asyncio.create_subprocess_exec(
            *command, "--temperature", "0.7", stdout=asyncio.subprocess.PIPE, env={**os.environ, **key}
        )
        output = asyncio.create_task(bench.communicate())
        compared = 0
        while not output.done():
            await self.healthy(compared % 64)
            compared += 1
        return json.loads((await output)[0])["rows"][0], compared

    async def healthy_clients(self, program, seconds, rate):
        """Their times over so many seconds, in rounds: each has the requests of the rest of them, and weighs as many."""
        figures = {"requests": 0, "compared": 0}
        begun = time.monotonic()
        while figures["requests"] == 0 or time.monotonic() - begun < seconds:
            requests = max(16, int(rate * (seconds - time.monotonic() + begun)))
            row, compared = await self.bench(program, requests)
            figures["compared"] += compared
            share = requests / (figures["requests"] + requests)
            figures["requests"] += requests
            for name in "inter_token_ms", "first_token_ms":
                for part in "p50", "p99":
                    shown = f"{name[:-3]}_{part}_ms"
                    figures[shown] = figures.get(shown, 0) * (1 - share) + row[name][part] * share
        return {**{name: round(value, 2) for name, value in figures.items()}, "seconds": round(time.monotonic() - begun, 2)}

    async def some(self, count, clients=8):
        async def client(first):
            for i in range(first, count, clients):
                await self.healthy(i % 64)

        await asyncio.gather(*(client(i) for i in range(clients)))

    async def many(self, count, tokens):
        async def one(i):
            await self.healthy(1000 + i % 16, tokens)

        await asyncio.gather(*(one(i) for i in range(count)))


def break_off(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Stalled:
    """Asks, and does not read until the server has ended it: only a reader hears of that."""

    def __init__(self, address):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(address)
        self.socket.sendall(request_text(long_body(), "faulty"))
        self.socket.setblocking(False)
        self.begun, self.last = time.monotonic(), b""

    def over(self):
        if time.monotonic() - self.begun < STALLED_S:
            return False
        try:
            while piece := self.socket.recv(65536):
                self.last = (self.last + piece)[-64:]
        except BlockingIOError:
            return False
        except ConnectionError:
            pass
        return True

    def cut_off(self):
        return b"[DONE]" not in self.last


class Slow:
    """Sends four bytes a second of a head, which is not whole in the server's ten seconds."""

    text = request_text(healthy_body(0))

    def __init__(self, address):
        self.socket = socket.create_connection(address)
        self.socket.setblocking(False)
        self.sent = 0

    def over(self):
        """Whether the server has answered or left it; else it sends its next byte."""
        with contextlib.suppress(BlockingIOError):
            try:
                self.socket.recv(4096)
            except ConnectionError:
                pass
            return True
        with contextlib.suppress(OSError):
            self.socket.send(self.text[self.sent : self.sent + 1])
            self.sent += 1
        return False


def fail(address, enough, counts):
    """The clients that fail, until it is enough. `counts`: stalled and slow ones that the server ended, and resets."""
    rng = random.Random(1)
    held = [Stalled(address) for _ in range(STALLED)]
    slow = [Slow(address) for _ in range(TRICKLING)]
    at, begun = 0, time.monotonic()
    while not enough.is_set():
        for i in [i for i, client in enumerate(held) if client.over()]:
            counts[0] += held[i].cut_off()
            held[i].socket.close()
            held[i] = Stalled(address)
        for i in [i for i, client in enumerate(slow) if client.over()]:
            counts[1] += 1
            slow[i].socket.close()
            slow[i] = Slow(address)
        at += 1
        for _ in range(RESETS // 4):
            reset = socket.create_connection(address)
            reset.sendall(request_text(long_body(), "faulty"))
            time.sleep(rng.random() * 0.02)
            break_off(reset)
            counts[2] += 1
        time.sleep(max(0, begun + at / 4 - time.monotonic()))  # four rounds a second
    for client in held + slow:
        client.socket.close()


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


async def work(served, arguments):
    load, pid = Load(served.url), served.process.pid
    for i in range(64):
        await load.healthy(i)
    rate = 64 / (await load.bench(arguments.program, 64))[0]["seconds"]
    figures = {"quiet": await load.healthy_clients(arguments.program, arguments.seconds, rate)}
    assert served.rests()
    before = descriptors(pid)
    enough = multiprocessing.Event()
    counts = multiprocessing.Array("q", 3)
    faults = multiprocessing.Process(target=fail, args=(load.address, enough, counts), daemon=True)
    faults.start()
    figures["beside_faults"] = await load.healthy_clients(arguments.program, arguments.seconds, rate)
    lasted = figures["beside_faults"]["seconds"]
    assert faults.is_alive(), "the clients that fail failed themselves"
    enough.set()
    faults.join()
    assert faults.exitcode == 0, "the clients that fail failed themselves"
    figures["faults"] = dict(zip(("stalled_that_came_again", "slow_that_came_again", "resets"), counts))
    assert served.rests(), "requests of clients that left still run"
    status = served.get("/v1/status")
    assert status["kv_bytes"] == status["kv_prefix_bytes"], status
    assert lasted < 20 or counts[1] >= TRICKLING, figures  # a head has ten seconds
    assert lasted < STALLED_S + 10 or counts[0] >= STALLED // 2, figures
    deadline = time.monotonic() + 15
    while descriptors(pid) > before and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    assert descriptors(pid) <= before, (before, descriptors(pid))
    rest = resident(pid)
    load.comments, begun = 0, time.monotonic()
    many = asyncio.create_task(load.many(arguments.streams, arguments.stream_tokens))
    most = rest
    while not many.done():
        most = max(most, resident(pid))
        await asyncio.sleep(0.05)
    await many
    figures["bytes_a_stream"] = (most - rest) // arguments.streams
    figures["streams_seconds"] = round(time.monotonic() - begun, 2)
    figures["keep_alives"] = load.comments
    assert served.rests()
    await load.some(64)
    begin = resident(pid)
    await load.some(arguments.requests)
    figures["resident_change"] = round(resident(pid) / begin - 1, 4)
    figures["resident_bytes"] = resident(pid)
    print(json.dumps(figures, indent=1))
    assert figures["streams_seconds"] < 20 or figures["keep_alives"] > 0, figures  # after 15 s of silence
    if not arguments.any_memory:
        assert figures["bytes_a_stream"] <= 65536, figures
        assert abs(figures["resident_change"]) <= arguments.resident, figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=120, help="of healthy clients alone, and of them beside faults")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--stream-tokens", type=int, default=TOKENS, help="of each of these streams")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--resident", type=float, default=0.02, help="share by which memory may change over requests")
    parser.add_argument("--any-memory", action="store_true", help="of a program whose sanitizer keeps what is freed")
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
