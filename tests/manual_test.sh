#!/usr/bin/env bash
# What tells people how the program is called: its manual has every option, shells complete them, and a word that it does
# not know is named with the one that was probably meant. Misuse ends with 2, everywhere.
set -u

manual="$(cd "$(dirname "$0")/.." && pwd)/docs/man/peel.1"
. "$(dirname "$0")/program.sh"

# Every subcommand, as words: what it has, and what the manual says of it.
python3 - "$peel" "$manual" >commands <<'PY' || fail "the manual and the program differ"
import re, subprocess, sys

peel, manual = sys.argv[1:]
sections, title = {}, ""
for line in open(manual):
    if line.startswith((".Ss ", ".Sh ")):
        title = line[4:].strip()
    sections[title] = sections.get(title, "") + line

def help_of(path):
    return subprocess.run([peel, *path, "--help"], check=True, capture_output=True, text=True).stdout

def named(option, text):  # -o, --output are ".It Fl o , -output" in the manual
    name = re.escape(option[1:])
    before = r"Fl(?: \w ,)? " if option.startswith("--") else "Fl "
    return re.search(rf"^\.It .*{before}{name}(?![\w-])", text, re.MULTILINE)

wrong = []
def compare(path):
    text = help_of(path)
    command = " ".join(path)
    options = re.findall(r"^  (?:(-\w),)?(--[\w-]+)", text, re.MULTILINE)
    said = "".join(body for title, body in sections.items()
                   if title == command or title == "Options of all subcommands"
                   or title.startswith("Options of") and command in re.split(r"[ ,]+", title))
    wrong.extend(f"peel {command} {option}: not in the manual" for names in options for option in names
                 if option and not named(option, said))
    known = {long[1:] for _, long in options}
    items = "".join(line for line in sections.get(command, "").splitlines(True) if line.startswith(".It "))
    wrong.extend(f"peel {command}: the manual has -{option}, which it does not take"
                 for option in re.findall(r"Fl(?: \w ,)? (-[\w-]+)", items) if option not in known)
    if path and command not in sections and command != "bench":
        wrong.append(f"peel {command}: no section of the manual")
    print(command)
    below = text.partition("Subcommands:\n")[2]
    for name in re.findall(r"^  (\w+)", below, re.MULTILINE):
        compare([*path, name])

compare([])
print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
sys.exit(bool(wrong))
PY
[ "$(wc -l <commands)" -ge 12 ] || fail "subcommands were not found: $(cat commands)"
if command -v mandoc >/dev/null; then
  mandoc -T lint -W warning "$manual" >lint 2>&1 || fail "the manual: $(cat lint)"
fi
if command -v man >/dev/null; then
  LC_ALL=C.UTF-8 man --warnings -l "$manual" 2>lint >/dev/null
  [ ! -s lint ] || fail "the manual: $(cat lint)"
fi

# refuses WORDS COMMAND...: it is misuse, and the complaint says WORDS.
refuses() {
  local words="$1" code
  shift
  "$peel" "$@" >/dev/null 2>err
  code=$?
  [ "$code" = 2 ] || fail "peel $* ends with $code, not 2: $(cat err)"
  grep -q -- "^peel: .*$words" err || fail "peel $* says '$(cat err)', not '$words'"
}
while read -r command; do
  # shellcheck disable=SC2086
  refuses "peel${command:+ $command} has no option '--frobnicate'" $command --frobnicate
  # shellcheck disable=SC2086
  refuses "has no option '--hepl'; did you mean '--help'?" $command --hepl
done <commands
refuses "there is no subcommand 'decod'; did you mean 'decode'?" decod -o a.npy a.peel
refuses "there is no subcommand 'decod'; did you mean 'decode'?" decod --help
refuses "there is no subcommand 'insp'; did you mean 'inspect'?" insp
refuses "there is no subcommand 'bench codek'; did you mean 'codec'?" bench codek
refuses "there is no subcommand 'xyzzy'; try peel --help" xyzzy
refuses "peel bench codec has no option '--elemnts'; did you mean '--elements'?" bench codec --elemnts=5
refuses "peel plan takes no '5'; try peel plan --help" plan --elements 9 --density 1 --workers 2 --bandwidth 1gbit 5
refuses "peel doctor takes no 'now'" doctor now
refuses "bash" completion tcsh
refuses "power of two" plan --elements 9 --density 1 --workers 2 --bandwidth 1gbit --grain 3
refuses "below the grain" encode --grain 4 --phase 4 a.npy
refuses "not in range" encode --workers 0 a.npy
refuses "subcommand" bench
if grep -qx 'switch' commands; then
  refuses "there is no subcommand 'switch staus'; did you mean 'status'?" switch staus
  refuses "below --workers" bench switch --switch 127.0.0.1:9 --rank 1
  refuses "must be even" bench switch --switch 127.0.0.1:9 --words 3
  refuses "fewer --jobs" switch --slots 3 --jobs 4
  refuses "more than --memory allows" switch --slots 1000000 --memory 1
fi

# completes WANTED WORDS...: what bash offers for the last word; "-" for nothing.
"$peel" completion bash >peel.bash || fail "completion bash"
completes() {
  local wanted="$1" offered
  shift
  offered="$(
    . ./peel.bash
    COMP_WORDS=(peel "$@")
    COMP_CWORD=$#
    _peel
    echo "${COMPREPLY[*]:--}"
  )"
  [ "$offered" = "$wanted" ] || fail "bash completes 'peel $*' with '$offered', not '$wanted'"
}
touch gradient.npy
completes "encode" enc
completes "codec" bench co
completes "demo decode" de
completes "zsh" completion z
completes "--like" encode --l
completes "packed" encode --codec pa
completes "packed" encode --codec = pa
completes "packed,sketch" bench codec --codec packed,s
completes "gradient.npy" encode gra
completes "gradient.npy" show --json gra
completes "--json" show --js
completes "-" plan --elements ""
completes "--elements" plan --el
for shell in zsh fish; do
  "$peel" completion $shell >"script.$shell" || fail "completion $shell"
  grep -q -- 'own-density' "script.$shell" || fail "completion $shell has no options"
done
if command -v zsh >/dev/null; then zsh -n script.zsh || fail "zsh does not read its completion"; fi
if command -v fish >/dev/null; then
  fish --no-execute script.fish || fail "fish does not read its completion"
  offered="$(fish --no-config -c 'source script.fish; complete -C "peel bench codec --codec s"' | cut -f1)"
  [ "$offered" = sketch ] || fail "fish completes --codec with '$offered'"
fi

[ "$failures" -eq 0 ] && echo "all passed"
exit $((failures != 0))
