# Sourced by tests that run the program: PEEL is its path, $work an empty folder to work in, fail() counts failures.
peel="${PEEL:?PEEL must be the path of the program}"
[ -x "$peel" ] || { echo "FAILED: $peel is not a program" >&2; exit 1; }
unset PEEL_BACKEND
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

failures=0
fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}
