"""Tables in Markdown."""

import collections
import sys

DASH = "–"


def progress(line):
    print(f"{title(line)}: measured", file=sys.stderr, flush=True)


def title(line):
    """The name of a measurement."""
    words = (f"IPv{line['family']}", line.get("part"), line["resolver"], line.get("what"))
    return ", ".join(filter(None, words))


def median(line, what):
    """The median, with the number of missing values if there are any."""
    found = line["ms"].get(what)
    if found is None or found["median"] is None:
        return DASH
    missing = f" ({found['missing']} missing)" if found["missing"] else ""
    return f"{found['median']:.0f}{missing}"


def extra(line, what, than, options, more=0):
    """Round trips to the authority that `what` took more than `than`. `more` ms are not counted."""
    one, other = (line["ms"].get(name, {}).get("median") for name in (what, than))
    if one is None or other is None:
        return DASH
    return f"{(one - other - more) / options.rtts['front'] + 0.0:.1f}".replace("-0.0", "0.0")


def ways(records):
    """How many requests took which way, and why not the way inside the lookup."""
    return dict(collections.Counter(f"{record['way']} {record['held_back'] or ''}".strip() for record in records))


def listed(counted):
    return ", ".join(f"{way} {count}" for way, count in sorted(counted.items()))


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def flights(lines, options):
    """Results with the name servers known, with the zone's own unknown, and with all unknown."""
    relay = options.rtts["relay"] / 2
    head = ["", "resolver", "plain, ms", "flight, ms", "extra RTT"]
    for state in ("NS unknown", "all unknown"):
        head += [f"{state}: plain", "flight", "extra RTT", "with parity", "extra RTT"]
    rows = []
    for line in lines:
        row = [f"IPv{line['family']}", line["resolver"]]
        for state in ("", "-parent", "-cold"):
            plain = f"plain{state}"
            row.append(median(line, plain))
            for what in ("flight", "parity") if state else ("flight",):
                row += [median(line, f"{what}{state}"), extra(line, f"{what}{state}", plain, options, relay)]
        rows.append(row)
    return table(head, rows)


def thesis(lines, options):
    head = ["", "resolver", "plain, ms", "4 labels, ms", "extra RTT", "5 labels, ms", "extra RTT"]
    rows = []
    for line in lines:
        row = [f"IPv{line['family']}", line["resolver"], median(line, "plain")]
        for count in (4, 5):
            row += [median(line, f"thesis-{count}"), extra(line, f"thesis-{count}", "plain", options)]
        rows.append(row)
    return table(head, rows)


def fetches(lines):
    ways = ("tcp", "udp", "dns")
    names = {"tcp": "TCP", "udp": "UDP", "dns": "in the lookup"}
    head = ["", "resolver", *(f"{names[way]}, name {known}" for known in ("known", "unknown") for way in ways)]
    head += ["ways of requests in the lookup"]
    rows = []
    for line in lines:
        row = [f"IPv{line['family']}", line["resolver"]]
        row += [median(line, f"fetch-{way}-{known}") for known in ("known", "unknown") for way in ways]
        counted = {}
        for known in ("known", "unknown"):
            for way, count in line["ms"][f"fetch-dns-{known}"]["ways"].items():
                counted[way] = counted.get(way, 0) + count
        row.append(", ".join(f"{way} {count}" for way, count in sorted(counted.items())))
        rows.append(row)
    return table(head, rows)


def together(lines, options):
    """The overall result of one run: first bytes, which copy won, and what the resolver adds."""
    rtt = options.rtts["server"]

    def first_byte(line, what):
        found = line["ms"][what]["median"]
        return DASH if found is None else f"{found:.0f} ms, {found / rtt:.1f} RTT"

    head = ["", "resolver", "name known: lookup + handshake", "in the lookup", "name unknown: lookup + handshake"]
    head += ["in the lookup", "won by the lookup's copy", "extra RTT: in the lookup", "thesis, 4 labels", "thesis, 5 labels"]
    rows = []
    for line in lines:
        row = [f"IPv{line['family']}", line["resolver"]]
        for known in ("known", "unknown"):
            row += [first_byte(line, f"fetch-udp-{known}"), first_byte(line, f"fetch-dns-{known}")]
        found = [line["ms"][f"fetch-dns-{known}"] for known in ("known", "unknown")]
        won = sum(times["ways"].get("lookup", 0) for times in found)
        row.append(f"{won} of {sum(sum(times['ways'].values()) for times in found)}")
        row.append(extra(line, "flight", "plain", options, options.rtts["relay"] / 2))
        row += [extra(line, f"thesis-{count}", "plain", options) for count in (4, 5)]
        rows.append(row)
    return table(head, rows)


def cost(lines):
    head = ["", "resolver", "a lookup, µs", "with a first flight beside it, µs", "added, µs", "for each of seven names, µs"]
    rows = []
    for line in lines:
        figures = (line["cost_us"][what] for what in ("lookup", "flight", "added", "a name"))
        rows.append([f"IPv{line['family']}", line["resolver"], *(f"{figure:.0f}" for figure in figures)])
    return table(head, rows)


def broken(lines):
    head = ["", "the resolver is", "today, ms", "in the lookup, ms", "added, ms", "way", "learnt, ms", "way"]
    rows = []
    for line in lines:
        added = DASH if line["added"] is None else f"{line['added']:+.0f}"
        row = [f"IPv{line['family']}", line["manner"], median(line, "today"), median(line, "via-dns"), added]
        rows.append([*row, ", ".join(line["ways"]), median(line, "again"), line["way_again"]])
    return table(head, rows)


def executed(line):
    return "{executed} of {asked}".format_map(line["executed"])


def limits(lines):
    kinds = {"today": "today", "first": "in the lookup, first time", "learnt": "in the lookup, learnt"}
    head = ["", "above the limit, dnsdist", "questions a second", "fetches at once"]
    for name in kinds.values():
        head += [f"{name}: succeeded", "ms"]
    head += ["ways, first time", "ways, learnt", "executed"]
    rows = []
    for line in lines:
        row = [f"IPv{line['family']}", line["action"], str(line["limit"]), str(line["together"])]
        for kind in kinds:
            row += ["{} of {}".format(*line["succeeded"][kind]), median(line, kind)]
        row += [listed(line["ways"][kind]) for kind in ("first", "learnt")]
        rows.append([*row, executed(line)])
    return table(head, rows)


def loss(lines):
    head = ["", "resolver", "today: succeeded", "ms", "mean", "in the lookup: succeeded", "ms", "mean"]
    head += ["ways", "runs with a stop", "longest stop, s", "executed"]
    rows = []
    for line in lines:
        row = [f"IPv{line['family']}", line["resolver"]]
        for succeeded, what in (("today", "today"), ("in the lookup", "via-dns")):
            mean = line["mean"][what]
            row += ["{} of {}".format(*line["succeeded"][succeeded]), median(line, what)]
            row.append(DASH if mean is None else f"{mean:.0f}")
        row += [listed(line["ways"]), "{} of {}".format(*line["stopped"]), str(line["longest_stop_s"])]
        row.append(executed(line))
        rows.append(row)
    return table(head, rows)


def fronts(lines):
    head = ["", "resolver", "fronts forward", "first flights that arrived", "ms", "ways of fetches", "executed"]
    rows = []
    for line in lines:
        row = [f"IPv{line['family']}", line["resolver"], "yes" if line["forwarding"] else "no"]
        row += ["{} of {}".format(*line["arrived"]), median(line, "flight"), listed(line["ways"])]
        rows.append([*row, executed(line)])
    return table(head, rows)


def visits(lines):
    head = ["", "today, ms", "with `--via-dns`, ms", "the server known, ms", "ways of the first", "of the known"]
    head += ["executed"]
    rows = []
    for line in lines:
        row = [f"IPv{line['family']}", *(median(line, kind) for kind in ("today", "first", "known"))]
        row += [listed(line["ways"][kind]) for kind in ("first", "known")]
        rows.append([*row, executed(line)])
    return table(head, rows)


def text(found, options):
    """The tables of the results."""
    real = [line for line in found if "manner" not in line and "part" not in line]

    def of(part):
        return [line for line in found if line.get("part") == part]

    parts = []
    if {"fetch", "flight", "thesis"} <= set(options.parts):
        parts += ["First bytes, and what the resolver adds", together(real, options)]
    if "flight" in options.parts:
        parts += ["First flights in seven fragments", flights(real, options)]
    if "thesis" in options.parts:
        parts += ["One name of several labels", thesis(real, options)]
    if "fetch" in options.parts:
        parts += ["Fetches, from the first question to the first byte, ms", fetches(real)]
    if "cost" in options.parts:
        parts += ["Processor time of the resolver", cost(real)]
    if "broken" in options.parts:
        parts += ["Resolvers that misbehave", broken([line for line in found if "manner" in line])]
    if "visit" in options.parts:
        parts += ["First visits", visits(of("visit"))]
    if "limits" in options.parts:
        parts += ["Limiters", limits(of("limits"))]
    if "loss" in options.parts:
        parts += ["Loss between the resolver and the authorities", loss(of("loss"))]
    if "signed" in options.parts:
        for beside in sorted({line["beside"] for line in of("signed")}, reverse=True):
            lines = [line for line in of("signed") if line["beside"] == beside]
            parts += [f"First flights below signed zones, xyz.com served by {beside}", flights(lines, options)]
    if "fronts" in options.parts:
        parts += ["Two fronts", fronts(of("fronts"))]
    versions = sorted({f"{line['resolver']} {line['version']}" for line in found if "version" in line})
    if versions:
        parts.append("Versions: " + "; ".join(versions))
    return "\n\n".join(parts)
