#!/usr/bin/env python3
"""Clients in UDP whose requests are in their first packets, by certificates: `firstflight get`.

    certified.py ADDRESS:PORT --get PATH --key KEY [--gets N] [--posts N]

The verifier with that public key is the server's own, in the same port. So many threads run one command after the other. Each
has a certificate and some requests, on a connection for each. A POST has no body. The words are those of `first.py`.
"""

import argparse
import collections
import hashlib
import json
import subprocess

from first import PATIENCE, Visitors

#: Requests of one command.
REQUESTS = 10


class Certified(Visitors):
    def __init__(self, options):
        super().__init__(options)
        self.command = [
            options.get, "get", "--json", "--udp", "--verifier", options.at, "--verifier-key", options.key, "--verify-first",
            "--asap-known", "--asap-once", "--found-verifiers", "off", "--timeout", f"{PATIENCE}s",
        ]  # fmt: skip
        self.reasons = collections.Counter()

    def visit(self, method):
        while not self.stopped.is_set():
            targets = {f"http://{self.options.at}{target}": target for target in (self.name(method) for _ in range(REQUESTS))}
            done = subprocess.run([*self.command, "-X", method, *targets], capture_output=True, text=True)
            records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            records = {record["url"]: record for record in records if "outcome" in record}
            for url, target in targets.items():
                self.judge(method, target, records.get(url), done)

    def judge(self, method, target, record, done):
        if record is None:
            # `get` reports each of its fetches.
            return self.note(method, target, "hung", False, f"no report: {done.returncode} {done.stderr[-300:]}")
        early = record["outcome"] == "accepted"
        error, status = record.get("error"), record["status"]
        with self.lock:
            self.reasons[f"{method}: {record['reason'] or record['outcome']}"] += 1
        if error is None and status == 200:
            right = record["sha256"] == hashlib.sha256(target.encode()).hexdigest()
            return self.note(method, target, "answered" if right else "wrong", early)
        if error is None:
            return self.note(method, target, f"status {status}", early)
        hung = record["total_ms"] - record["waited_ms"] > (PATIENCE - 1) * 1000
        self.note(method, target, "hung" if hung else "cut" if status else "reset", early, error)

    def told(self):
        return {**super().told(), "reasons": self.reasons}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("at")
    parser.add_argument("--get", metavar="PATH", required=True, help="the command `firstflight`")
    parser.add_argument("--key", required=True)
    parser.add_argument("--label", default="udp")
    for name in ("gets", "posts"):
        parser.add_argument(f"--{name}", type=int, default=0)
    Certified(parser.parse_args()).run()
