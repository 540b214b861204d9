"""JSON lines of `peel bench codec --backend cuda` from standard input, as a table on standard output."""

import json
import sys

# The share of a copy that is aimed at on an H200 with 2^27 float32, by codec and density, for uniform supports over a
# bitmap in a warm cache.
GOALS = {
    ("packed", 0.001): 0.75,
    ("packed", 0.01): 0.75,
    ("packed", 0.05): 0.65,
    ("packed", 0.1): 0.60,
    ("packed", 0.3): 0.50,
    ("packed", 0.7): 0.40,
    ("sketch", 0.001): 0.50,
    ("sketch", 0.01): 0.60,
    ("sketch", 0.05): 0.45,
    ("sketch", 0.1): 0.36,
    ("sketch", 0.3): 0.22,
    ("sketch", 0.7): 0.13,
}

HEADING = ("codec", "index", "grain", "density", "encode us", "decode us", "copy us", "Gbps", "share", "goal", "lost",
           "wrong")
ROW = "{:<15} {:<7} {:>8} {:>8} {:>10} {:>10} {:>9} {:>7} {:>7} {:>8} {:>6} {:>6}"


def goal_of(report):
    plain = report["pattern"] == "uniform" and report["index"] == "bitmap" and report["grain"] == 1
    if not plain or report["cold_l2"]:
        return None
    return GOALS.get((report["codec"], round(report["density"], 4)))


def row(report):
    seconds = report["encode_s"] + report["decode_s"]
    goal = goal_of(report)
    verdict = "-" if goal is None else f"{goal:.1%}" + ("" if report["share"] >= goal else " !")
    return ROW.format(
        f"{report['codec']} {report['cells']}",
        report["index"],
        f"{report['grain']}" + (f"+{report['phase']}" if report["phase"] else ""),
        f"{report['density']:.3%}",
        f"{report['encode_s'] * 1e6:.1f}",
        f"{report['decode_s'] * 1e6:.1f}",
        f"{report['roofline_s'] * 1e6:.1f}",
        f"{report['dense_bytes'] * 8 / seconds * 1e-9:.0f}",
        f"{report['share']:.1%}",
        verdict,
        report["lost"],
        report["wrong"],
    )


def main():
    heading = False
    for line in sys.stdin:
        report = json.loads(line)
        if not heading:
            print(f"{report['gpu']}, {report['sm_clock_mhz']} MHz, memory {report['memory_clock_mhz']} MHz")
            print(ROW.format(*HEADING))
            heading = True
        print(row(report), flush=True)


main()
