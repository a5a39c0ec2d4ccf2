"""The results as text."""

import json
import statistics
import sys

WAYS = {"kernel": "kernel's TCP", "ip": "TCP on TUN", "udp": "TCP in UDP", "other": "other programs"}


def progress(text):
    """A line that overwrites itself, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def word(record, name):
    """What a record says: `server early` is `early` in what the server said."""
    *outer, name = name.split(" ")
    for part in outer:
        record = record.get(part) or {}
    value = record.get(name)
    return bool(value) if name == "sealed" else value


def short(record):
    return json.dumps({name: value for name, value in record.items() if name not in ("began", "ended")}, sort_keys=True)


def words(record):
    """What the libraries say, in a few words."""
    if "error" in record:
        return "error: certificate" if "certificate" in record["error"] else record["error"]
    if "outcome" not in record:
        return "early data" if record["early_data"] == "accepted" else ""
    said = [record["reason"] or record["outcome"]]
    if record["seal"]:
        said.append(record["seal"])
    elif record["early_data"] == "accepted":
        said.append("early data")
    else:
        said.append(record["tls"])
    return ", ".join(said)


def results(cells, world, load):
    """Everything that was measured, row by row."""
    rows = {}
    for cell in cells:
        if not cell.records:
            continue
        row = rows.setdefault(cell.row.name, {"row": cell.row.name, "trips": cell.row.trips, "cells": {}})
        times = sorted(record["ms"] for record in cell.records)
        # Of several connections the first one; all visits of a row are alike.
        syn, behind = next((record["flights"][0] for record in cell.records if record["flights"]), (0, 0))
        row["cells"][cell.way] = {
            "round_trips": statistics.median(times) / world.rtt,
            "least": times[0] / world.rtt,
            "most": times[-1] / world.rtt,
            "syn_bytes": syn,
            "behind_bytes": behind,
            "words": sorted({words(record) for record in cell.records}),
            "disturbed": cell.disturbed,
            "faults": cell.faults,
            "visits": cell.records,
        }
    samples = max((len(cell.records) for cell in cells), default=0)
    return {"rtt_ms": world.rtt, "samples": samples, "certificates": world.told, "load": load, "rows": list(rows.values())}


def _cell(cell):
    if cell is None:
        return ""
    size = f"{cell['syn_bytes']} B" if cell["syn_bytes"] else ""
    behind = f"+ {cell['behind_bytes']} B" if cell["behind_bytes"] else ""
    return ", ".join(filter(None, (f"{cell['round_trips']:.2f}", " ".join(filter(None, (size, behind))))))


def _said(cells):
    said = {way: " or ".join(cell["words"]) for way, cell in cells.items()}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return "; ".join(f"{WAYS[way]}: {text}" for way, text in said.items())


def table(results):
    """In Markdown."""
    lines = [
        f"First byte of the response in round trips of {results['rtt_ms']} ms, median of {results['samples']}, then bytes of data in "
        f"the SYN and behind it. Server's {results['certificates']}. Load of the machine {results['load'][0]:.1f} to "
        f"{results['load'][1]:.1f}.",
        "",
        "| contact | kernel's TCP | TCP on TUN | TCP in UDP | what the libraries say |",
        "|---|---|---|---|---|",
    ]
    rows = [row for row in results["rows"] if "other" not in row["cells"]]
    for row in rows:
        cells = [_cell(row["cells"].get(way)) for way in ("kernel", "ip", "udp")]
        lines.append(f"| {' | '.join([row['row'], *cells, _said(row['cells'])])} |")
    others = [row for row in results["rows"] if "other" in row["cells"]]
    if others:
        lines += ["", "| other program | round trips |", "|---|---|"]
    for row in others:
        lines.append(f"| {row['row']} | {row['cells']['other']['round_trips']:.2f} |")
    return "\n".join(lines)
