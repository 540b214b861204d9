"""JSON lines of `peel bench codec --backend cuda` from standard input, as a table on standard output."""

import json
import sys

# The share of a copy that a naive prototype reached on an H200 with 2^27 float32: its Gbps, by 16,450 of a copy. Keyed by
# codec and density, for uniform supports over a bitmap in a warm cache.
TO_BEAT = {
    ("packed", 0.001): 0.766,
    ("packed", 0.01): 0.670,
    ("packed", 0.05): 0.600,
    ("packed", 0.1): 0.561,
    ("packed", 0.3): 0.480,
    ("packed", 0.7): 0.394,
    ("sketch", 0.001): 0.135,
    ("sketch", 0.01): 0.452,
    ("sketch", 0.05): 0.312,
    ("sketch", 0.1): 0.243,
    ("sketch", 0.3): 0.153,
    ("sketch", 0.7): 0.089,
}

HEADING = ("codec", "index", "grain", "density", "encode us", "decode us", "copy us", "Gbps", "share", "to beat", "lost",
           "wrong")
ROW = "{:<15} {:<7} {:>8} {:>8} {:>10} {:>10} {:>9} {:>7} {:>7} {:>8} {:>6} {:>6}"


def to_beat(report):
    plain = report["pattern"] == "uniform" and report["index"] == "bitmap" and report["grain"] == 1
    if not plain or report["cold_l2"]:
        return None
    return TO_BEAT.get((report["codec"], round(report["density"], 4)))


def row(report):
    seconds = report["encode_s"] + report["decode_s"]
    target = to_beat(report)
    verdict = "-" if target is None else f"{target:.1%}" + ("" if report["share"] >= target else " !")
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
