"""The pages of `firstflight-lab pages`, as files that a server can serve and a browser can load."""

import os
import random

#: The smallest GIF; what follows its end is ignored.
GIF = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b")
SUFFIXES = {"html": "html", "style": "css", "script": "js", "image": "gif"}


def name(host, page):
    """The name of one of a page's hosts."""
    return f"h{host}.{page}.test"


class Site:
    """A page, as `--describe` shows it."""

    def __init__(self, described):
        self.title = described["name"]
        self.name = "".join(letter for letter in self.title if letter.isalpha())
        self.resources = described["resources"]
        self.hosts = [name(host, self.name) for host in range(described["hosts"])]
        self.url = self.where(0)

    def where(self, number):
        resource = self.resources[number]
        return f"http://{self.hosts[resource['host']]}/{self.name}/{number}.{SUFFIXES[resource['kind']]}"

    def children(self, number):
        return [n for n, resource in enumerate(self.resources) if n and resource["parent"] == number]

    def write(self, root):
        """Writes all files below `root`. Every host serves all of them."""
        os.makedirs(os.path.join(root, self.name))
        for number, resource in enumerate(self.resources):
            content = getattr(self, resource["kind"])(number, resource)
            with open(os.path.join(root, self.name, f"{number}.{SUFFIXES[resource['kind']]}"), "wb") as file:
                file.write(content)

    def html(self, number, resource):
        size, head = resource["size"], True
        out = '<!DOCTYPE html><html><head><meta charset="utf-8"><title>page</title>'
        by_style = [n for n, there in enumerate(self.resources) if self.by_style(there)]
        styled = [f'<div class="c{n}" style="width:9px;height:9px"></div>' for n in by_style]
        children = sorted(self.children(number), key=lambda n: self.resources[n]["at"])
        for child in children:
            there = self.resources[child]
            if head and not there["blocks"]:
                head = False
                # A browser without a window lays nothing out before it has to, and would miss the images of the styles.
                out += "</head><body>" + "".join(styled) + "<script>document.body.offsetTop</script>"
            out += _comment(int(there["at"] * size) - len(out), child)
            out += self.tag(child, there)
        out += _comment(size - len(out) - len("</body></html>"), number)
        return (out + "</body></html>").encode()

    def by_style(self, resource):
        return resource["kind"] == "image" and self.resources[resource["parent"]]["kind"] == "style"

    def tag(self, number, resource):
        where = self.where(number)
        return {
            "html": f'<iframe src="{where}"></iframe>',
            "style": f'<link rel="stylesheet" href="{where}">',
            "script": f'<script src="{where}"></script>',
            "image": f'<img src="{where}" width="9" height="9">',
        }[resource["kind"]]

    def style(self, number, resource):
        rules = "".join(f'.c{n}{{background-image:url("{self.where(n)}")}}' for n in self.children(number))
        return _padded(rules, resource["size"], number)

    def script(self, number, resource):
        work = resource["work_us"] / 1000
        code = f"(function(){{var t=performance.now();while(performance.now()-t<{work:.1f});"
        for child in self.children(number):
            if self.resources[child]["kind"] == "script":
                code += f'var s=document.createElement("script");s.src="{self.where(child)}";document.head.appendChild(s);'
            else:
                code += f'new Image().src="{self.where(child)}";'
        return _padded(code + "})();", resource["size"], number)

    def image(self, number, resource):
        return GIF + random.Random(number).randbytes(max(resource["size"] - len(GIF), 0))


def _text(length, seed):
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz ", k=length))


def _comment(length, seed):
    return f"<!--{_text(length - 7, seed)}-->" if length >= 7 else ""


def _padded(text, size, seed):
    room = size - len(text) - 4
    return (text + (f"/*{_text(room, seed)}*/" if room > 0 else "")).encode()
