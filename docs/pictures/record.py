#!/usr/bin/env python3
"""Records a real run of `mainstay demo` as two SVG pictures, for light and dark pages.

    cargo build --release --locked && python3 docs/pictures/record.py

The program runs in a pseudo-terminal of 80 columns. Its output is shown as a terminal would show it: colours are kept, progress lines that
the program overwrites are gone. Only whole scenes are kept, by their numbers; nothing else is changed.
"""

import html
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COLUMNS = 80
SCENES = ("1", "2")
CELL_W, CELL_H, PAD = 8.4, 19, 18

THEMES = {
    "dark": {"page": "#0d1117", "text": "#e6edf3", "dim": "#8b949e", "31": "#ff7b72", "32": "#3fb950", "33": "#d29922"},
    "light": {"page": "#f6f8fa", "text": "#1f2328", "dim": "#656d76", "31": "#cf222e", "32": "#1a7f37", "33": "#9a6700"},
}


def main():
    program = Path(sys.argv[1]) if len(sys.argv) > 1 else find_program()
    screen = lines_of(run([str(program), "demo"]))
    kept = select(screen)
    for theme, colours in THEMES.items():
        picture = HERE / f"demo-{theme}.svg"
        picture.write_text(draw(kept, colours), encoding="utf-8")
        print(picture.relative_to(ROOT))


def find_program():
    found = sorted(ROOT.glob("target/**/release/mainstay"), key=lambda path: path.stat().st_mtime)
    if not found:
        sys.exit("no release build found: run `cargo build --release --locked` first, or name the program")
    return found[-1]


def run(command):
    """The bytes that the command writes to a terminal of COLUMNS columns."""
    leader, follower = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    environment = dict(os.environ, TERM="xterm-256color")
    environment.pop("NO_COLOR", None)
    child = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    said = bytearray()
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # Linux: the last writer has closed the terminal.
            break
        if not piece:
            break
        said += piece
    if child.wait() != 0:
        sys.exit(f"{' '.join(command)} failed with {child.returncode}")
    return said.decode("utf-8")


def lines_of(said):
    """The lines of the screen: each a list of (text, style), after carriage returns and erasures."""
    lines = []
    for raw in said.replace("\r\n", "\n").split("\n"):
        last = re.split(r"\r(?:\x1b\[K)?", raw)[-1]
        style, spans = frozenset(), []
        for part in re.split(r"(\x1b\[[0-9;]*[A-Za-z])", last):
            if not part:
                continue
            code = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
            if code:
                for number in (code[1] or "0").split(";"):
                    style = frozenset() if number == "0" else style | {number}
            elif not part.startswith("\x1b"):
                spans.append((part, style))
        lines.append(spans)
    return lines


def text(spans):
    return "".join(part for part, _ in spans)


def select(lines):
    """The title, the scenes of SCENES, and the last line."""
    kept, scene = [], None
    for spans in lines:
        number = re.match(r"(\d+)  \S", text(spans))
        if number:
            scene = number[1]
        if scene is None or scene in SCENES:
            kept.append(spans)
    last = [spans for spans in lines if text(spans).strip()][-1]
    while kept and not text(kept[-1]).strip():
        kept.pop()
    return [[("$ mainstay demo", frozenset({"1"}))]] + kept + [[("   …", frozenset({"2"}))], last]


def draw(lines, colours):
    width = COLUMNS * CELL_W + 2 * PAD
    height = len(lines) * CELL_H + 2 * PAD
    rows = []
    for row, spans in enumerate(lines):
        at, pieces = 0, []
        for part, style in spans:
            if part.strip():
                colour = next((colours[code] for code in ("31", "32", "33") if code in style), None)
                colour = colour or (colours["dim"] if "2" in style else colours["text"])
                bold = ' font-weight="bold"' if "1" in style else ""
                x = PAD + at * CELL_W
                length = len(part) * CELL_W
                pieces.append(
                    f'<tspan x="{x:.1f}" textLength="{length:.1f}" fill="{colour}"{bold}>{html.escape(part)}</tspan>'
                )
            at += len(part)
        if pieces:
            y = PAD + (row + 0.75) * CELL_H
            rows.append(f'<text y="{y:.1f}">{"".join(pieces)}</text>')
    body = "\n".join(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="A run of mainstay demo">\n'
        f'<rect width="100%" height="100%" rx="8" fill="{colours["page"]}"/>\n'
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="14" '
        f'xml:space="preserve">\n{body}\n</g>\n</svg>\n'
    )


if __name__ == "__main__":
    main()
