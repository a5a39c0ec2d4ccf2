"""The results as text."""

import sys
import time

from matrix import MEASURES, SHOWN, SIDES

BEGAN = time.monotonic()


def progress(text):
    """A line with the time since the beginning."""
    minutes, seconds = divmod(int(time.monotonic() - BEGAN), 60)
    sys.stderr.write(f"{minutes:3}:{seconds:02} {text}\n")
    sys.stderr.flush()


def pair(told):
    return "–" if told is None else f"{told['median_ms']:.0f}, {told['high_ms']:.0f}"


def _head(*names):
    return [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]


def _times(cells, measure):
    columns = [f"{name}{'' if side == 'ours' else ', plain'}" for name in SHOWN for side in SIDES]
    lines = _head("path", "RTT, ms", "loss", *columns)
    for cell in cells:
        times = [pair(cell["visits"][name][side][measure]) for name in SHOWN for side in SIDES]
        lines.append(f"| {' | '.join([cell['path'], str(cell['rtt_ms']), str(cell['loss']) + ' %', *times])} |")
    return lines


def _others(cells):
    lines = _head("path", "RTT, ms", "loss", "accepted: first, second, later", "in UDP", "second sockets",
                  "first packets: empty, ClientHello, part of one", "POSTs, GETs that ran", "downloads", "held")  # fmt: skip
    for cell in cells:
        visits, extra, packets = cell["visits"], cell["second_sockets"], cell["first_packets"]
        accepted = ", ".join(f"{100 * visits[name]['accepted']:.0f} %" for name in SHOWN)
        in_udp = [visits[name]["ways"].get("udp", 0) / max(1, sum(visits[name]["ways"].values())) for name in SHOWN]
        lines.append("| " + " | ".join([
            cell["path"], str(cell["rtt_ms"]), f"{cell['loss']} %", accepted, ", ".join(f"{100 * share:.0f} %" for share in in_udp),
            "" if extra is None else f"{extra['count']} of {extra['visits']}",
            ", ".join(str(packets.get(kind, 0)) for kind in ("empty", "whole", "part")),
            f"{cell['executed'].get('POST', 0)}, {cell['executed'].get('GET', 0)}",
            "; ".join(f"{words} {count}" for words, count in sorted(cell["downloads"].items()))
            + (f"; {cell['under_way']} of ours under way" if cell["downloads"] else ""),
            "**no**" if cell["faults"] else "yes",
        ]) + " |")  # fmt: skip
    return lines


def table(results):
    """In Markdown."""
    cells, lines = results["cells"], []
    if cells:
        for measure, words in MEASURES.items():
            lines += [f"{words.capitalize()}, ms: median, and the 99th percentile (with loss the 90th), of "
                      f"{results['samples']} clients:", "", *_times(cells, measure), ""]  # fmt: skip
        lines += [*_others(cells), ""]
    if results["checks"]:
        lines += _head("check", "what was seen", "held")
        for check in results["checks"]:
            said = check["said"] or f"skipped: {check['skipped']}" if not check["fault"] else check["fault"]
            held = "**no**" if check["fault"] else "" if check["skipped"] else "yes"
            lines.append(f"| {check['check']} | {said.replace('|', '/')} | {held} |")
        lines.append("")
    load = " to ".join(f"{value:.1f}" for value in results["load"])
    lines.append(f"`{results['command']}`: {results['seconds'] / 60:.0f} minutes, load of the machine {load}.")
    return "\n".join(lines)
