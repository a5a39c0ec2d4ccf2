"""The records that docs/dns-front.md adds to a zone. The tests run what that page shows."""

import os
import re

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "dns-front.md")
SECTION = "## Beside your own BIND or NSD"
#: The fronts' addresses there.
FIRST, SECOND = "192.0.2.53", "198.51.100.53"


def records(holding, family, addresses, parameter=""):
    """The records of the first block of the section that has `holding` in it, with the addresses of the fronts in place
    of those shown, and the parameter in place of that of the HTTPS record."""
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
