"""The records that docs/dns-front.md adds to a zone. The tests use what that page shows."""

import os
import re

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "dns-front.md")
SECTION = "## Beside your own BIND or NSD"
#: The fronts' addresses on that page.
FIRST, SECOND = "192.0.2.53", "198.51.100.53"


def records(holding, family, addresses, parameter=""):
    """The records of the first block in the section that contains `holding`, with the fronts' addresses in place of
    those shown, and `parameter` in place of the HTTPS record's parameter."""
    with open(PAGE, encoding="utf-8") as file:
        section = file.read().split(f"\n{SECTION}\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"^```text\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    block = next(block for block in blocks if holding in block)
    for shown, address in addresses.items():
        before = block
        block = block.replace(f" A     {shown}\n", f" {'AAAA' if family == 6 else 'A'} {address}\n")
        if block == before:
            raise AssertionError(f"docs/dns-front.md no longer shows {shown} in the block with {holding}")
    return re.sub(r'key65300="[^"\n]*"', lambda _: parameter, block)
