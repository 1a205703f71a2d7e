"""Draws the pictures of docs/architecture.md, in light and dark colours.

python docs/figures/draw_architecture.py
"""

from html import escape
from pathlib import Path

FIGURES = Path(__file__).resolve().parent
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.name { font-weight: 600 }
.small { font-size: 11.5px; fill: #59636e }
rect { fill: #f6f8fa; stroke: #d1d9e0; rx: 6 }
.strong { fill: #ddf4ff; stroke: #54aeff }
path { stroke: #818b98; stroke-width: 1.5; fill: none }
#head path { fill: #818b98; stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .small { fill: #9198a1 }
  rect { fill: #151b23; stroke: #3d444d }
  .strong { fill: #0c2d6b; stroke: #388bfd }
}
"""

# Rows from above; a room imports from rows below it, and of its own row only
# from the left.
ROOMS = (
    (
        ("bin", "programs, flags"),
        ("benchmarks", "speed"),
    ),
    (
        ("data_prep", "text to shards"),
        ("experiments", "the paper's tables"),
    ),
    (("jobs", "pretraining, fine-tuning, evaluation"),),
    (
        ("inputs", "batches by step"),
        ("analysis", "states of layers"),
        ("training", "the step and the loop"),
    ),
    (
        ("cluster", "replicas, signals"),
        ("rundir", "checkpoints, logs"),
        ("report", "pages of runs"),
    ),
    (
        ("interchange", "formats, exports"),
        ("prediction", "texts to answers"),
        ("search", "nearest texts"),
        ("serving", "requests in batches"),
    ),
    (
        ("modeling", "encoder, heads, losses, weights"),
        ("optim", "LAMB, Muon, schedules"),
        ("tasks", "rows to features, scores"),
    ),
    (
        ("text", "text to ids"),
        ("records", "shards, masking"),
    ),
    (
        ("config", "settings"),
        ("io", "files, locks"),
    ),
)

# (what is done, where, what comes out)
BATCH = (
    ("Read", "records/shards.py", "records of this step"),
    ("Mask", "records/masking.py", "input_ids [B, S], positions [B, P]"),
    ("Distribute", "cluster/distribution.py", "rows of each replica"),
    ("Embed", "modeling/layers.py", "states [B, S, E], projected to [B, S, H]"),
    ("Attention", "modeling/attention.py", "context [B, S, H]"),
    ("Feed-forward", "modeling/blocks.py", "states [B, S, H]"),
    ("Heads", "modeling/heads/", "logits [B, P, V] and [B, 2]"),
    ("Losses", "modeling/losses.py", "(weighted sum, weight) of each head"),
    ("Gradients", "training/gradients.py", "a gradient of each weight"),
    ("Update", "optim/lamb.py", "the weights of the next step"),
)
# The steps that are made again, with the same weights, for every layer.
BLOCK = (4, 5)


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "") -> str:
    size = f'width="{width}" height="{height}"'
    return f'<rect x="{x}" y="{y}" {size} class="{kind}"/>'


def picture(width: int, height: int, parts: list[str]) -> str:
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
        '<path d="M0 0 8 4 0 8z"/></marker>'
    )
    return "\n".join(
        (
            '<svg xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {width} {height}" width="{width}">',
            f"<style>{STYLE}</style><defs>{head}</defs>",
            *parts,
            "</svg>\n",
        )
    )


def rooms() -> str:
    width, gap, height = 760, 10, 46
    parts = []
    for number, row in enumerate(ROOMS):
        each = (width - gap * (len(row) + 1)) / len(row)
        y = gap + number * (height + gap)
        for column, (name, subject) in enumerate(row):
            x = gap + column * (each + gap)
            kind = "strong" if name in ("modeling", "training") else ""
            parts += [
                box(x, y, each, height, kind),
                text(x + 12, y + 19, name, "name"),
                text(x + 12, y + 36, subject, "small"),
            ]
    return picture(width, gap + len(ROOMS) * (height + gap), parts)


def batch() -> str:
    gap, height, left, width = 14, 36, 72, 264
    parts = []
    for number, (step, place, result) in enumerate(BATCH):
        y = 10 + number * (height + gap)
        in_block = number in BLOCK
        parts += [
            box(left, y, width, height, "strong" if in_block else ""),
            text(left + 12, y + 22, step, "name"),
            text(left + 116, y + 22, place, "small"),
            text(left + width + 24, y + 22, result),
        ]
        if number:
            middle = left + width / 2
            parts.append(
                f'<path d="M{middle} {y - gap}V{y - 1}" '
                'marker-end="url(#head)"/>'
            )
    first, last = (10 + n * (height + gap) + height / 2 for n in BLOCK)
    parts += [
        f'<path d="M{left} {last}H{left - 22}V{first}H{left - 1}" '
        'marker-end="url(#head)"/>',
        text(8, (first + last) / 2 - 2, "L", "name"),
        text(8, (first + last) / 2 + 13, "times", "small"),
    ]
    return picture(700, 10 + len(BATCH) * (height + gap), parts)


if __name__ == "__main__":
    for name, drawing in (("rooms", rooms()), ("batch", batch())):
        (FIGURES / f"{name}.svg").write_text(drawing, encoding="utf-8")
