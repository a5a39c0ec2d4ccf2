"""The results as a table."""

import statistics

from transfer import DIRECTIONS

REFERENCE = DIRECTIONS[-1]

HEAD = (
    "| wire | bytes | from → to | median, s | 99 %, s | median : kernel's | 99 % : kernel's | runs, all equal |",
    "|---|---|---|---|---|---|---|---|",
)


def quantile(values, share):
    """The value that this share of the values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000 * len(ordered)) // 1000) - 1))]


def lines(results, scenarios, head=False):
    """Markdown lines, one for each scenario, size and direction."""
    found = list(HEAD) if head else []
    groups = {}
    for result in results:
        if "scenario" in result:
            groups.setdefault((result["scenario"], result["size"], result["direction"]), []).append(result)
    for scenario in scenarios:
        sizes = sorted({size for name, size, _ in groups if name == scenario.name})
        for size in sizes:
            reference = times(groups.get((scenario.name, size, REFERENCE), []))
            for direction in DIRECTIONS:
                group = groups.get((scenario.name, size, direction))
                if group:
                    found.append(line(scenario, size, direction, group, reference))
    return found


def times(group):
    return [result["seconds"] for result in group if result["seconds"] is not None]


def line(scenario, size, direction, group, reference):
    same = sum(result["same"] for result in group)
    runs = f"{same}, yes" if same == len(group) else f"{len(group)}, **{len(group) - same} not**"
    mine = times(group)
    if not mine:
        return f"| {scenario.name} | {size} | {direction} | | | | | {runs} |"
    cells = [statistics.median(mine), quantile(mine, 0.99)]
    ratios = ["", ""]
    if reference and direction != REFERENCE:
        theirs = [statistics.median(reference), quantile(reference, 0.99)]
        ratios = [f"{value / other:.2f}" for value, other in zip(cells, theirs)]
    values = " | ".join([*(f"{value:.3f}" for value in cells), *ratios])
    return f"| {scenario.name} | {size} | {direction} | {values} | {runs} |"
