"""Tables of the scripts that pass, with the reasons for those that fail."""

import os
import tomllib

#: The kinds of reasons, and their text in the table.
KINDS = {
    "default": "another default",
    "defect": "to be mended",
    "deliberate": "deliberately different",
    "missing": "missing feature",
    "scope": "out of scope",
}


def read_reasons(path):
    """[(pattern of a path, kind, reason)] in the order of the file. The first matching entry counts."""
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        entries = tomllib.load(file).get("reason", [])
    for entry in entries:
        if entry["kind"] not in KINDS:
            raise SystemExit(f"{path}: kind {entry['kind']!r} is none of {', '.join(KINDS)}")
    return [(script, entry["kind"], entry["text"]) for entry in entries for script in entry["scripts"]]


def reason(name, reasons):
    """(kind, text) for a script, or None. A pattern that ends with `/` or `*` applies to all paths with that prefix."""
    for script, kind, text in reasons:
        whole = script.endswith(("/", "*"))
        if name == script or whole and name.startswith(script.rstrip("*")):
            return kind, text
    return None


def unexplained(results, as_linux, reasons):
    """The scripts that fail without a reason. The kind `default` is no reason for a script that also fails with
    Linux' settings."""
    names = []
    for name, (passed, _) in results.items():
        kind = None if passed else (reason(name, reasons) or ("", ""))[0]
        if kind == "" or kind == "default" and not as_linux[name][0]:
            names.append(name)
    return names


def folder(name):
    """The script's folder. Without a folder, the first two words of its name."""
    head = os.path.dirname(name)
    if head:
        return head
    return "_".join(name.split("_")[:2])


def table(results, as_linux, reasons):
    rows = {}
    for name, (passed, _) in results.items():
        empty = {"scripts": 0, "pass": 0, "linux": 0, **{kind: 0 for kind in KINDS}, "?": 0}
        row = rows.setdefault(folder(name), empty)
        row["scripts"] += 1
        row["linux"] += as_linux[name][0]
        if passed:
            row["pass"] += 1
        else:
            found = reason(name, reasons)
            row[found[0] if found else "?"] += 1
    total = {key: sum(row[key] for row in rows.values()) for key in next(iter(rows.values()))}
    heads = ["folder", "scripts", "pass with the defaults", "pass as Linux", *KINDS.values(), "not looked at"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for head, row in [*sorted(rows.items()), ("**all**", total)]:
        cells = [head, *(str(row[key]) if row[key] or key in ("scripts", "pass", "linux") else "" for key in total)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def failures(results, reasons):
    groups = {}
    for name, (passed, _) in results.items():
        if not passed:
            kind, text = reason(name, reasons) or ("defect", "not looked at yet")
            groups.setdefault((list(KINDS).index(kind), KINDS[kind], text), []).append(name)
    lines = ["| what | why | scripts |", "|---|---|---|"]
    for (_, kind, text), names in sorted(groups.items()):
        lines.append(f"| {kind} | {text} | " + ", ".join(f"`{name.removesuffix('.pkt')}`" for name in names) + " |")
    return "\n".join(lines) if groups else "Nothing fails."


def write(directory, section, results, as_linux, reasons):
    """Writes the tables of a section, which docs/conformance.md includes."""
    path = os.path.join(directory, f"{section}.txt")
    if not os.path.exists(path):
        raise SystemExit(f"there is no {path}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{table(results, as_linux, reasons)}\n\n{failures(results, reasons)}\n")
