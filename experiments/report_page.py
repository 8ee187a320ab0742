"""The two forms of the report: one page of HTML that needs nothing else, and Markdown beside the figures."""

import base64
import html
import pathlib
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

GOOD = {"met", "verified", "equal"}
BAD = {"MISSED", "refuted", "DIFFERENT"}
OPEN = {"not testable here", "a random draw"}


class Section(NamedTuple):
    """A piece of the report: text, a figure, a table, notes.

    A cell may have two lines: a number and, smaller, what it is compared with.
    """

    title: str
    text: list[str]
    figure: str | None = None  # a file's stem
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    best: Collection[tuple[int, int]] = ()  # (row, column) of cells in bold
    wide: Collection[str] = ()  # heads of columns of prose, which may wrap
    notes: Sequence[str] = ()  # under the table, in order
    under: bool = False  # part of the section before it


def signed(text: str) -> str:
    """The text with true minus signs before numbers: −.012, not -.012."""
    return re.sub(r"(?<![\w.−-])-(?=\.?\d)", "−", text)


def markdown(sections: Sequence[Section], folder: pathlib.Path) -> str:
    """The report as Markdown; figures are links to files of the folder."""
    lines = []
    for place, s in enumerate(sections):
        level = "#" if place == 0 else "###" if s.under else "##"
        title = _escaped(s.title)
        lines += [f"{level} {title}", "", *(f"{_escaped(t)}\n" for t in s.text)]
        if s.figure and (folder / f"{s.figure}.png").exists():
            lines += [f"![{title}]({s.figure}.png)", ""]
        if s.rows:
            bold = [
                [_bold(c) if (r, k) in s.best else c for k, c in enumerate(map(_line, row))]
                for r, row in enumerate(s.rows)
            ]
            lines += [_row(s.head), "| --- " * len(s.head) + "|", *map(_row, bold), ""]
        if s.notes:
            lines += [*(f"- {_escaped(note)}" for note in s.notes), ""]
    return "\n".join(lines)


def _line(cell: str) -> str:
    return signed(" ".join(cell.splitlines()))


def _bold(cell: str) -> str:
    number, blank, rest = cell.partition(" ")
    return f"**{number}**{blank}{rest}"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell).replace("|", "\\|") for cell in cells) + " |"


def _escaped(text: str) -> str:
    """The text on one line, in which a name cannot be taken for HTML."""
    return html.escape(signed(" ".join(text.splitlines())), quote=False)


CSS = """
:root{--line:#ddd;--soft:#f5f6f8;--ink:#1f2328;--dim:#5b6470;--back:#fff;--good:#12703c;--bad:#b3261e;--open:#7a5900}
@media (prefers-color-scheme:dark){
:root{--line:#3a3f47;--soft:#22262c;--ink:#e6e8eb;--dim:#a0a8b3;--back:#16191d;--good:#5fd38d;--bad:#ff8a80}
:root{--open:#e6c35c} img{background:#fff}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;margin:0;color:var(--ink);background:var(--back)}
a{color:inherit} main{max-width:68rem;margin:0 auto;padding:1rem 1rem 4rem}
nav{font-size:13px;padding:1rem} nav ul{list-style:none;margin:0;padding:0} nav li{margin:.15rem 0}
nav a{text-decoration:none} nav a:hover{text-decoration:underline} nav .under{padding-left:.9rem;color:var(--dim)}
nav summary{font-weight:600;cursor:pointer}
h1{font-size:1.7rem;line-height:1.2} h3{margin-top:1.6rem}
h2{margin-top:2.6rem;padding-top:.6rem;border-top:1px solid var(--line)}
p{max-width:52rem} img{max-width:100%;height:auto}
.scroll{overflow-x:auto;margin:.6rem 0 1rem}
table{border-collapse:collapse;font-size:12px;font-variant-numeric:tabular-nums}
td,th{border-bottom:1px solid var(--line);padding:.28rem .42rem;text-align:left;vertical-align:top;white-space:nowrap}
td.wide{white-space:normal;min-width:15rem} td.commit{white-space:normal;min-width:5rem;color:var(--dim);font-size:11px}
th{background:var(--soft)} tr:hover td{background:var(--soft)}
small{color:var(--dim);font-size:11px;font-weight:400}
.good,.bad,.open{font-weight:600} .good{color:var(--good)} .bad{color:var(--bad)} .open{color:var(--open)}
.good::before{content:"✓ "} .bad::before{content:"✗ "} .open::before{content:"? "}
.notes{font-size:12.5px;color:var(--dim);padding-left:1.2rem}
@media (min-width:75em){
nav{position:fixed;top:0;left:0;width:15rem;height:100vh;overflow-y:auto;border-right:1px solid var(--line)}
main{margin-left:15rem;max-width:none;padding:1rem 2rem 4rem}}
@media (max-width:40em){main{padding:.5rem .8rem 3rem} h1{font-size:1.35rem} table{font-size:12px}
td,th{padding:.25rem .35rem}
.prose thead{display:none} .prose td{display:block;white-space:normal;border:0;padding:.1rem 0}
.prose tr{display:block;border-bottom:1px solid var(--line);padding:.5rem 0}}
"""
NARROW = (
    "if(matchMedia('(max-width:75em)').matches)document.querySelector('nav details').open=false"
)


def page(sections: Sequence[Section], folder: pathlib.Path) -> str:
    """The report as one page of HTML: figures inside, a list of contents at the side, no network."""
    first, *others = sections
    contents = "".join(
        f'<li{" class=under" if s.under else ""}><a href="#s{place}">{_html(s.title)}</a></li>'
        for place, s in enumerate(others, 1)
    )
    parts = [f"<h1>{_html(first.title)}</h1>", *_body(first, folder)]
    for place, s in enumerate(others, 1):
        level = 3 if s.under else 2
        parts += [f'<h{level} id="s{place}">{_html(s.title)}</h{level}>', *_body(s, folder)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(first.title)}</title><style>{CSS}</style></head><body>"
        f"<nav><details open><summary>Contents</summary><ul>{contents}</ul></details></nav>"
        f"<script>{NARROW}</script><main>{''.join(parts)}</main></body></html>\n"
    )


def _body(s: Section, folder: pathlib.Path) -> list[str]:
    parts = [f"<p>{_html(text)}</p>" for text in s.text]
    picture = folder / f"{s.figure}.png"
    if s.figure and picture.exists():
        code = base64.b64encode(picture.read_bytes()).decode()
        parts.append(f'<img alt="{html.escape(s.title)}" src="data:image/png;base64,{code}">')
    if s.rows:
        head = "".join(f"<th>{_html(name)}</th>" for name in s.head)
        body = "".join(
            "<tr>" + "".join(_cell(s, r, k, cell) for k, cell in enumerate(row)) + "</tr>"
            for r, row in enumerate(s.rows)
        )
        parts.append(
            f'<div class="scroll"><table{" class=prose" if s.wide else ""}><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )
    if s.notes:
        parts.append(f'<ul class="notes">{"".join(f"<li>{_html(n)}</li>" for n in s.notes)}</ul>')
    return parts


def _cell(s: Section, row: int, column: int, cell: str) -> str:
    shown, *small = cell.split("\n")
    text = _html(shown)
    if (row, column) in s.best:
        number, blank, paper = text.partition(" ")
        text = f"<b>{number}</b>{blank}{paper}"
    verdict = shown.split(" (")[0]
    for name, words in (("good", GOOD), ("bad", BAD), ("open", OPEN)):
        if verdict in words:
            text = f'<span class="{name}">{text}</span>'
    if small:
        text += f"<br><small>{_html(' '.join(small))}</small>"
    name = s.head[column]
    kind = " class=wide" if name in s.wide else " class=commit" if name == "commit" else ""
    return f"<td{kind}>{text}</td>"


def _html(text: str) -> str:
    """The text for HTML, with `code` as code and addresses as links."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(signed(text)))
    return re.sub(r"https://[\w./-]*[\w/]", r'<a href="\g<0>">\g<0></a>', text)
