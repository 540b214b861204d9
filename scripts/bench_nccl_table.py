"""JSON lines of `peel bench allreduce --transport nccl` from standard input, as a table on standard output."""

import json
import sys

# How many times as fast as ncclAllReduce is aimed at, with 4 workers on one H200, sockets between them, and 2^27 float32
# each; by strategy and pattern, for the density of the union.
GOALS = {
    ("auto", "uniform"): {0.01: 30, 0.05: 14, 0.3: 3.5, 0.7: 1.5, 0.9: 0.97, 1.0: 0.97},
    ("auto", "rows:64"): {0.035: 22},
    ("packed", "uniform"): {0.01: 12, 0.05: 7, 0.3: 2.3},
    ("packed", "rows:64"): {0.035: 15},
}

HEADING = ("pattern", "density", "strategy", "chosen", "grain", "time ms", "nccl ms", "speed-up", "goal", "/dense",
           "encode ms", "wire ms", "decode ms", "lost", "wrong")
ROW = "{:<8} {:>8} {:<9} {:<7} {:>6} {:>9} {:>8} {:>9} {:>8} {:>7} {:>10} {:>8} {:>10} {:>5} {:>6}"


def goal_of(report):
    goals = GOALS.get((report["strategy"], report["pattern"]), {})
    near = [goal for density, goal in goals.items() if abs(report["density"] / density - 1) < 0.02]
    return near[0] if near else None


def milliseconds(seconds):
    return f"{seconds * 1e3:.2f}"


def row(report):
    goal = goal_of(report)
    verdict = "-" if goal is None else f"{goal}x" + ("" if report["speedup"] >= goal else " !")
    return ROW.format(
        report["pattern"],
        f"{report['density']:.2%}",
        report["strategy"],
        report["chosen"],
        report["grain"],
        milliseconds(report["seconds"]),
        milliseconds(report["baseline_seconds"]),
        f"{report['speedup']:.2f}x",
        verdict,
        f"{report['bytes_sent'] / report['dense_bytes']:.2%}" if report["dense_bytes"] else "-",
        milliseconds(report["encode_s"]),
        milliseconds(report["wire_s"]),
        milliseconds(report["decode_s"]),
        report["lost"],
        report["wrong"],
    )


def main():
    heading = False
    for line in sys.stdin:
        report = json.loads(line)
        if not heading:
            print(f"{report['workers']} workers, {report['elements']} {report['type']} each, in {report['memory']} memory, "
                  f"{report['baseline']} sums {report['dense_bytes'] / report['baseline_seconds'] * 8e-9:.1f} Gbps")
            print(ROW.format(*HEADING))
            heading = True
        print(row(report), flush=True)


main()
