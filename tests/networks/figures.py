"""The measurements of a line, and whether they are as required."""

import collections
import itertools
import statistics

from visits import SHOWN, VISITS

#: How much later a first byte may arrive than a plain visit's plus the delay of a second attempt, ms.
SLACK = 20
#: How much longer than for a plain visit the command may take before its fetch begins, ms. This is less than a
#: verifier's answer takes, and more than the variation of a process start on a busy machine.
BEFORE = 40


def quantile(values, share):
    """The value that this share of the values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


class Figures:
    """The samples of a line."""

    def __init__(self, line):
        self.line = line
        self.samples, self.plains, self.found = [], [], []
        #: At-most-once uploads: how many were sent, how many of them were accepted in a SYN, how many succeeded
        #: without being executed, the maximum number of executions of one, and the total number
        #: of executions.
        self.uploads = self.rode = self.unexecuted = self.most = self.executed = 0

    def summary(self, times_matter, extra=()):
        """The line's result. With `times_matter` its time bound is checked."""
        line = self.line
        plain = [run.visits[0] for run in self.plains]
        shown = [self._visit(number) for number in SHOWN]
        result = {
            "line": line.name, "network": line.network, "way": str(line.way), "samples": len(self.samples),
            "measure": line.measure, "quantile": line.quantile, "second_ms": list(line.second),
            "visits": shown, "plain": told(plain, line.quantile),
            "before_ms": spread([run.before for run in self.samples], line.quantile),
            "plain_before_ms": spread([run.before for run in self.plains], line.quantile),
            "uploads": {"sent": self.uploads, "in_syn": self.rode, "executed": self.executed, "most": self.most},
        }  # fmt: skip
        failures = [*self._outcomes(plain), *extra, *self.found]
        late = list(self._late(shown, result))
        result["bound_ms"] = [bound(result, number) for number in range(len(SHOWN))]
        result["late"] = late
        result["failures"] = [*failures, *(late if times_matter else ())]
        return result

    def _visit(self, number):
        return told([run.visits[number - 1] for run in self.samples], self.line.quantile)

    def _outcomes(self, plain):
        failed = sum(not visit.ok for visit in plain)
        if failed:
            yield f"{failed} of {len(plain)} plain visits failed"
        yield from self._between(range(1, VISITS + 1), self._failed)
        yield from self._between(range(1, VISITS + 1), self._odd)
        if self.most > 1 or self.executed > self.uploads:
            yield f"{self.uploads} uploads were executed {self.executed} times, one of them {self.most} times"
        if self.unexecuted:
            yield f"{self.unexecuted} uploads succeeded and were not executed"
        if self.line.rides and not self.rode:
            yield f"none of {self.uploads} uploads was accepted in a SYN"

    def _between(self, numbers, found):
        """The findings about visits. Equal findings about consecutive visits are reported once."""
        said = [(number, found(number)) for number in numbers]
        for text, some in itertools.groupby(said, lambda item: item[1]):
            first, *_, last = [number for number, _ in some] * 2
            if text:
                yield f"visit {first}: {text}" if first == last else f"visits {first} to {last}: {text}"

    def _failed(self, number):
        visits = [run.visits[number - 1] for run in self.samples]
        wrong = [visit for visit in visits if not visit.ok]
        return f"{len(wrong)} of {len(visits)} failed ({wrong[0].error or wrong[0].word})" if wrong else None

    def _odd(self, number):
        words = self.line.words
        expected = words[SHOWN.index(number)] if number in SHOWN else words[1] | words[2]
        visits = [run.visits[number - 1] for run in self.samples]
        odd = collections.Counter(visit.word for visit in visits if visit.ok and visit.word not in expected)
        return f"{listed(odd)} of {len(visits)}, not {' or '.join(sorted(expected))}" if odd else None

    def _late(self, shown, result):
        """The visits that were later than permitted."""
        line, plain = self.line, result["plain"]
        if plain["high_ms"] is None:
            return
        for number, visit in enumerate(shown):
            most = bound(result, number)
            if visit["high_ms"] is not None and visit["high_ms"] > most:
                yield f"visit {SHOWN[number]}: {visit['high_ms']:.0f} ms, bound {most:.0f} ms"
        before, plain_before = result["before_ms"], result["plain_before_ms"]
        if before and plain_before and before["median_ms"] > plain_before["median_ms"] + BEFORE:
            yield f"{before['median_ms']:.0f} ms before the fetch began, plain {plain_before['median_ms']:.0f} ms"
        second = shown[1]["median_ms"]
        if line.gain is not None and second is not None and second > line.gain * plain["median_ms"]:
            yield f"visit 2: {second:.0f} ms, more than {line.gain:.0%} of a plain one's {plain['median_ms']:.0f} ms"


def bound(result, number):
    high = result["plain"]["high_ms"]
    return None if high is None else high + result["second_ms"][number] + SLACK


def told(visits, share):
    """Summarises the visits that have the same number."""
    times = [visit.first for visit in visits if visit.first is not None]
    return {
        "words": dict(collections.Counter(visit.word if visit.ok else f"failed ({visit.word})" for visit in visits)),
        "failed": sum(not visit.ok for visit in visits),
        **(spread(times, share) or {"median_ms": None, "high_ms": None}),
    }


def spread(times, share):
    times = [time for time in times if time is not None]
    if not times:
        return None
    return {"median_ms": statistics.median(times), "high_ms": quantile(times, share)}


def listed(counted):
    return ", ".join(f"{word} {count}" for word, count in sorted(counted.items(), key=lambda item: -item[1]))


HEAD = ("network", "client", "outcome: first", "second", "tenth", "first byte, ms: first", "second", "tenth", "plain",
        "bound", "executed", "samples", "held")  # fmt: skip


def table(results):
    """The results as a Markdown table."""
    rows = [HEAD, ("---",) * len(HEAD), *map(row, results)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def row(result):
    visits = result["visits"]
    words = [", ".join(f"{word} {share(count, result)}".strip() for word, count in sorted(
        visit["words"].items(), key=lambda item: -item[1])) for visit in visits]  # fmt: skip
    times = [pair(visit) for visit in (*visits, result["plain"])]
    most = " / ".join("–" if value is None else f"{value:.0f}" for value in result["bound_ms"])
    sent = result["uploads"]
    executed = f"{sent['executed']} of {sent['sent']}" if sent["sent"] else "–"
    executed += f", {sent['in_syn']} in a SYN" if sent["in_syn"] else ""
    return (result["network"], result["way"], *words, *times, most, executed, str(result["samples"]),
            "**no**" if result["failures"] else "yes")  # fmt: skip


def share(count, result):
    return "" if count == result["samples"] else f"({100 * count / max(1, result['samples']):.0f} %)"


def pair(told):
    return "–" if told["median_ms"] is None else f"{told['median_ms']:.0f} / {told['high_ms']:.0f}"
