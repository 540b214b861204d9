#!/usr/bin/env bash
# The transport over MPI, with processes that talk over TCP: results, and what happens when one of them stops or dies.
set -u

program="${BUILD_DIR:?BUILD_DIR must be the folder of the build}/mpi_program"
if ! [ -x "$program" ]; then echo "skipped: this build has no transport over MPI"; exit 0; fi
if ! command -v mpirun >/dev/null; then echo "skipped: mpirun was not found; install openmpi-bin"; exit 0; fi
if ! mpirun --version 2>/dev/null | grep -q "Open MPI"; then echo "skipped: mpirun is not Open MPI's"; exit 0; fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export LSAN_OPTIONS="${LSAN_OPTIONS:-}:detect_leaks=0" # Open MPI keeps what it has until the end

work="$(mktemp -d)"
job=""
cleanup() {
  if [ -n "$job" ]; then kill -KILL "$job" 2>/dev/null; fi
  rm -rf "$work"
}
trap cleanup EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
run=(mpirun --oversubscribe --mca btl tcp,self --mca btl_tcp_if_include lo)

for workers in 1 2 3 4; do
  timeout 120 "${run[@]}" -np "$workers" "$program" collectives >"$work/out" 2>&1 ||
    fail "$workers workers: $(tail -n 20 "$work/out")"
done
timeout 60 "${run[@]}" -np 2 "$program" wrong >"$work/out" 2>&1 || fail "wrong: $(tail -n 20 "$work/out")"
timeout 120 "${run[@]}" -np 2 "$program" states >"$work/out" 2>&1 || fail "states: $(tail -n 20 "$work/out")"
timeout 60 "${run[@]}" -np 2 "$program" threads >"$work/out" 2>&1 || fail "threads: $(tail -n 20 "$work/out")"

# wait_for SECONDS COMMAND...: until the command is true.
wait_for() {
  local tries=$(($1 * 10))
  shift
  until "$@"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || return 1
    sleep 0.1
  done
}
have() { # NAME RANK...: whether these workers have written that file
  local name="$1" rank
  shift
  for rank in "$@"; do [ -e "$folder/$name.$rank" ] || return 1; done
}
job_ended() { ! kill -0 "$job" 2>/dev/null; }
end_job() { # the workers would sleep on
  kill -TERM "$job" 2>/dev/null
  wait_for 30 job_ended || fail "$folder: the job did not end"
}
others() { # RANK: the ranks of the others
  local rank
  for rank in 0 1 2 3; do [ "$rank" = "$1" ] || echo "$rank"; done
}
begin_faults() { # NAME
  folder="$work/$1"
  mkdir "$folder"
  "${run[@]}" -np 4 "$program" faults "$folder" >"$folder/out" 2>&1 &
  job=$!
  wait_for 60 have pid 0 1 2 3 || fail "$1: the workers did not start: $(tail -n 20 "$folder/out")"
  sleep 1
}

# A worker that does not call make_mpi: the others do not wait for ever, and say who it is.
for absent in 0 2; do
  folder="$work/absent$absent"
  mkdir "$folder"
  "${run[@]}" -np 4 "$program" absent "$absent" "$folder" >"$folder/out" 2>&1 &
  job=$!
  wait_for 30 have error $(others "$absent") || fail "worker $absent was absent and the others did not notice"
  for rank in $(others "$absent"); do
    grep -q "^timeout: Worker $absent did not call make_mpi" "$folder/error.$rank" ||
      fail "worker $rank said: $(cat "$folder/error.$rank")"
  done
  end_job
done

# A stopped worker: the others say who it is, and nobody else, and go on to live.
for stopped in 0 1 2 3; do
  begin_faults "stopped$stopped"
  kill -STOP "$(cat "$folder/pid.$stopped")"
  wait_for 30 have error $(others "$stopped") || fail "worker $stopped was stopped and the others did not notice"
  for rank in $(others "$stopped"); do
    grep -q "^Worker $stopped \(sent\|took\) nothing for 1.5" "$folder/error.$rank" ||
      fail "worker $stopped was stopped, worker $rank said: $(cat "$folder/error.$rank")"
  done
  kill -KILL "$(cat "$folder/pid.$stopped")"
  wait_for 30 job_ended || fail "the job did not end after a worker was stopped"
done

# A killed worker: mpirun ends the job, or the others notice; nobody hangs.
begin_faults killed
kill -KILL "$(cat "$folder/pid.1")"
wait_for 40 job_ended || fail "the job did not end after a worker was killed"
job=""

[ "$failures" -eq 0 ] || exit 1
echo "the transport over MPI works"
