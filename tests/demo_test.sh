#!/usr/bin/env bash
# peel demo from outside: what it says of every element, what it refuses, its page, and what it measures by itself on
# links that are limited in user space.
set -u

. "$(dirname "$0")/program.sh"

says() { grep -qE -- "$2" "$1" || fail "$1 does not say '$2': $(cat "$1")"; }

# counts N PATTERN: so many lines of the table are like this.
counts() { [ "$(grep -cE -- "$2" table)" -eq "$1" ] || fail "not $1 lines like '$2': $(cat table)"; }

# shows STATEMENT: the table of the results, after the statement has changed each `report`.
shows() {
  python3 -c "import json
for line in open('results.jsonl'):
    report = json.loads(line)
    $1
    print(json.dumps(report))" | "$peel" demo --results - >table 2>err
}

# Real values: what is said of every element is what the strategy promises, and no more.
"$peel" bench allreduce --elements 2^14 --density 0.01,0.1 --values real --strategy packed,sketch,split,auto --repeat 1 \
  --rate 1gbit --json results.jsonl || fail "results for the demonstration"
"$peel" demo --results results.jsonl --html page.html >table || fail "the demonstration"
counts 2 '^  packed .* as a dense sum$'
counts 2 '^  sketch .* within [0-9.]+e-[0-9]+$'
counts 2 '^  split .* rounded once$'
paragraphs() { tr '\n' ' ' <table | tr -s ' ' >text; }  # lines are wrapped
paragraphs
says text 'Over links of 1 Gbit/s, 4 workers sum a gradient with 1% non-zeros .* none is wrong'
says text 'limited in user space'
says table '1.4e-14 to 0.125'
says table '^Words$'
says table '^Next$'
python3 - <<'PY' || fail "the page of the demonstration"
import re
page = open("page.html").read()
assert page.count("role='img'") == 2, "charts"
assert not re.search(r"https?:|<script|<link|@import|url\(", page), "it loads something"
assert "prefers-color-scheme: dark" in page and "lang='en'" in page and "width=device-width" in page
for words in ("none is wrong", "limited in user space", "What was measured", "Words", "Next", "rounded once", "within "):
    assert words in page, words
PY

# A bound is rounded up: 9.31e-10 is not within 9.3e-10.
shows 'report["error_bound"] = 9.31e-10' || fail "another bound"
counts 2 '^  sketch .* within 9.4e-10$'
shows 'report["values"] = "exact"' || fail "crafted values"
counts 8 ' equal$'
shows 'report["hosts"] = 4' || fail "results of a network"
paragraphs
says text 'network namespaces'

# Wrong sums, and times that no link allows, are told and are a failure.
shows 'report["wrong"] = 3' && fail "wrong sums are a success"
counts 8 ' 3 wrong, 0 lost$'
says table '^24 elements of the sums are wrong or lost'
shows 'report["seconds"] = 7.9 * report["bytes_sent"] / report["rate_bits"]' && fail "faster than its link is a success"
counts 8 ' faster than its link$'
says err 'less time than the link takes'
shows 'report["baseline_seconds"] = 7.9 * report["dense_bytes"] / report["rate_bits"]' &&
  fail "a baseline that is faster than its link is a success"
shows 'report["transport"], report["seconds"] = "switch", 5.4 * report["bytes_sent"] / report["rate_bits"]' ||
  fail "through a switch, messages cross a link once: $(cat err)"
shows 'report["transport"], report["seconds"] = "switch", 5.3 * report["bytes_sent"] / report["rate_bits"]' &&
  fail "faster than its link is a success through a switch"

shows 'del report["exactness"]' && fail "half a result is shown"
says err 'not a result'
"$peel" demo --results - </dev/null >/dev/null 2>err && fail "nothing is shown as a success"
says err 'no results'

# Without results it measures by itself.
"$peel" demo --elements 2^14 --rate 1gbit >table 2>err || fail "the demonstration on threads: $(cat table err)"
counts 24 '^  (packed|sketch|split|auto)(: [a-z]+)? .* [0-9.]+x '
paragraphs
says text 'limited in user space'
says text 'sudo make demo'

[ "$failures" -eq 0 ] && echo "all passed"
exit $((failures != 0))
