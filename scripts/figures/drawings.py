"""The drawings: how things work, in boxes and arrows."""

from __future__ import annotations

from html import escape

from .image import svg


def all_drawings() -> dict[str, str]:
    return {
        "how-it-works.svg": how_it_works(),
        "peeling.svg": peeling(),
        "chunks.svg": chunks(),
        "folders.svg": folders(),
    }


def how_it_works() -> str:
    """Three workers with twelve elements each, by the codec `packed`."""
    gradients = [{2: 3, 7: 1}, {2: 2, 9: 4}, {7: 2}]
    union = [2, 7, 9]
    side, left = 20, 146
    out = []

    def strip(top: int, values: dict[int, int], colour: int) -> None:
        for at in range(12):
            out.append(_box(left + side * at, top, side, 20, f"f{colour} soft" if at in values else "cell", values.get(at)))

    out.append(_text(12, 26, "1. Each worker has a gradient, mostly zeros", "strong"))
    for worker, values in enumerate(gradients):
        out.append(_text(12, 51 + 25 * worker, f"worker {worker + 1}", "name"))
        strip(36 + 25 * worker, values, worker)
    out.append(_arrow(266, 112, 266, 134))
    out.append(_text(276, 128, "encode", "name"))
    out.append(_text(12, 152, "2. It sends an index (bits) and packed values", "strong"))
    for worker, values in enumerate(gradients):
        top = 162 + 25 * worker
        out.append(_text(12, top + 15, f"message {worker + 1}", "name"))
        for at in range(12):
            out.append(_box(left + 10 * at, top, 10, 20, f"f{worker}" if at in values else "cell"))
        out.append(_text(left + 133, top + 15, "+", "name"))
        for at, place in enumerate(union):
            inside = values.get(place, 0)
            out.append(_box(left + 150 + 30 * at, top, 30, 20, f"f{worker} soft" if inside else "cell", inside))
    out.append(_arrow(206, 238, 206, 258))
    out.append(_arrow(341, 238, 341, 258))
    out.append('<rect class="shade" x="12" y="260" width="396" height="50" rx="6"/>')
    out.append(_text(22, 281, "3. Any all-reduce,", "strong"))
    out.append(_text(22, 299, "or a switch", "strong"))
    out.append(_text(206, 290, "OR", "strong", "middle"))
    out.append(_text(341, 290, "SUM", "strong", "middle"))
    out.append(_arrow(206, 311, 206, 329))
    out.append(_arrow(341, 311, 341, 329))
    for at in range(12):
        out.append(_box(left + 10 * at, 331, 10, 20, "f3" if at in union else "cell"))
    out.append(_text(left + 133, 346, "+", "name"))
    total = {place: sum(values.get(place, 0) for values in gradients) for place in union}
    for at, place in enumerate(union):
        out.append(_box(left + 150 + 30 * at, 331, 30, 20, "f3 soft", total[place]))
    out.append(_text(12, 346, "merged message", "name"))
    out.append(_arrow(266, 356, 266, 378))
    out.append(_text(276, 372, "decode", "name"))
    out.append(_text(12, 396, "4. Every worker has every element of the sum", "strong"))
    out.append(_text(12, 421, "the sum", "name"))
    strip(406, total, 3)
    return svg("How a sum is made: encode, OR and SUM, decode", 420, 440, out)


def peeling() -> str:
    """Three items in three cells each, which are peeled in two rounds."""
    stages = [
        ("The index says: a, b and c are in the sketch", ["a+b", "c", "a", "b+c", "a+b", "c"], {1, 2, 5}),
        ("Round 1: cells that hold one item give a and c", ["b", "0", "0", "b", "b", "0"], {0, 3, 4}),
        ("Round 2 gives b. All cells are zero: lost == 0", ["0"] * 6, set()),
    ]
    out = []
    for stage, (told, cells, lonely) in enumerate(stages):
        top = 14 + 112 * stage
        out.append(_text(12, top + 14, told, "strong"))
        for at, inside in enumerate(cells):
            left = 20 + 60 * at + 10 * (at // 2)
            out.append(_box(left, top + 26, 60, 32, "f2 soft" if at in lonely else "cell", inside))
        for third in range(3):
            out.append(_text(80 + 130 * third, top + 76, f"subtable {third + 1}", "", "middle"))
        if stage < 2:
            taken = "take a and c out of their other cells" if stage == 0 else "take b out of its other cells"
            out.append(_arrow(30, top + 84, 30, top + 106))
            out.append(_text(42, top + 100, taken, "name"))
    return svg("Peeling a sketch", 420, 340, out)


def chunks() -> str:
    """Four chunks of one array: coding hides behind the wire."""
    out = [_text(12, 26, "In chunks: coding hides behind the wire", "strong")]
    names = ["encode", "wire", "decode"]

    def row(top: int, label: str) -> None:
        out.append(_text(12, top + 18, label, "name"))
        out.append(f'<line class="grid" x1="76" y1="{top + 27}" x2="408" y2="{top + 27}"/>')

    for stage, label in enumerate(names):
        row(40 + 32 * stage, label)
    start, code, wire = 78, 18, 36  # of one chunk
    for chunk in range(4):
        sent = start + code + wire * chunk
        for stage, (left, wide) in enumerate([(start + code * chunk, code), (sent, wire), (sent + wire, code)]):
            out.append(_box(left, 40 + 32 * stage, wide, 26, f"f{chunk} soft", chunk + 1))
    end = start + code + 4 * wire + code
    out.append(_text(12, 168, "As a whole: each waits for the other", "strong"))
    for stage, label in enumerate(names):
        row(182 + 32 * stage, label)
    left = start
    for stage, wide in enumerate([4 * code, 4 * wire, 4 * code]):
        out.append(_box(left, 182 + 32 * stage, wide, 26, "f7 soft", "1 to 4"))
        left += wide
    out.append(f'<line class="level" x1="{end}" y1="36" x2="{end}" y2="148"/>')
    out.append(f'<line class="level" x1="{end}" y1="178" x2="{end}" y2="280"/>')
    out.append(_text(end, 298, "done", "name", "middle"))
    out.append(f'<line class="level" x1="{left}" y1="178" x2="{left}" y2="280"/>')
    out.append(_text(left, 298, "done", "name", "middle"))
    out.append(_text(start, 298, "time", "", "start"))
    return svg("Chunks of an array under way", 420, 312, out)


def folders() -> str:
    """Who may use whom: each box only what is below it."""
    out = [_text(12, 26, "Each folder uses only what stands below it", "strong")]
    boxes = [
        (12, 40, 128, 52, "src/cli", "peel"),
        (146, 40, 128, 52, "bench", "what measures"),
        (280, 40, 128, 52, "python", "the package"),
        (12, 100, 396, 52, "include/peel", "the public headers"),
        (12, 160, 195, 52, "src/allreduce", "choices, chunks, repair"),
        (213, 160, 195, 82, "src/transport", "MPI, NCCL, threads, switch"),
        (12, 220, 195, 52, "src/items", "messages, owners, adding"),
        (12, 280, 195, 52, "src/codec", "reference, cpu and cuda"),
        (213, 250, 195, 82, "src/switch", "slots, jobs, both planes"),
        (12, 340, 396, 52, "src/plan", "sizes and mapping, for host and device"),
    ]
    for left, top, wide, high, name, told in boxes:
        out.append(f'<rect class="shade" x="{left}" y="{top}" width="{wide}" height="{high}" rx="6"/>')
        out.append(_text(left + wide / 2, top + high / 2 - 4, name, "code", "middle"))
        out.append(_text(left + wide / 2, top + high / 2 + 15, told, "", "middle"))
    return svg("Map of the folders", 420, 404, out)


def _box(left: float, top: float, wide: float, high: float, style: str, inside: object = None) -> str:
    drawn = f'<rect class="cell" x="{left}" y="{top}" width="{wide}" height="{high}"/>'
    if style != "cell":
        drawn += f'<rect class="{style}" x="{left}" y="{top}" width="{wide}" height="{high}"/>'
    if inside is not None:
        drawn += _text(left + wide / 2, top + high / 2 + 4.5, str(inside), "name", "middle")
    return drawn


def _text(left: float, base: float, text: str, style: str = "", anchor: str = "start") -> str:
    chosen = f' class="{style}"' if style else ""
    return f'<text{chosen} x="{left}" y="{base}" text-anchor="{anchor}">{escape(text)}</text>'


def _arrow(left: float, top: float, right: float, bottom: float) -> str:
    return (
        f'<path class="arrow" d="M{left} {top}L{right} {bottom - 5}"/>'
        f'<path class="head" d="M{right - 4.5} {bottom - 7}H{right + 4.5}L{right} {bottom}Z"/>'
    )
