# To be read by scripts that do one step after another: $logs is their folder of logs, and $failed becomes 1 with the
# first step that fails.
mkdir -p "$logs"
failed=0

# step NAME COMMAND...: runs it into a log, and says in one line how it went.
step() {
  local script="${0##*/}" name="$1" log="$logs/${1// /-}.log" start=$SECONDS note
  shift
  [ ! -t 1 ] || printf '%s: %-28s ...\r' "$script" "$name"
  if "$@" >"$log" 2>&1; then
    note="$(grep -m 1 -oE '^skipped: .*' "$log" || true)"
    printf '%s: %-28s %-6s %4d s  %s\n' "$script" "$name" ok $((SECONDS - start)) "$note"
  else
    printf '%s: %-28s %-6s %4d s  %s\n' "$script" "$name" FAILED $((SECONDS - start)) "$log"
    tail -n 40 "$log" | sed 's/^/    /'
    failed=1
    return 1
  fi
}
