#!/usr/bin/env bash
# The program runs where MPI, NCCL, CUDA and libbpf are missing: it is linked with none of them, and a module that is not
# there, or that cannot be loaded, is one sentence that says what to do.
set -u

. "$(dirname "$0")/program.sh"
modules="${BUILD_DIR:?BUILD_DIR must be the folder of the build}/modules"

if ldd "$peel" | grep -E 'lib(mpi|nccl|bpf|cudart)'; then fail "the program itself needs a library of a module"; fi
for module in "$modules"/*.so; do
  [ -e "$module" ] || continue
  if ldd "$module" | grep libcudart; then fail "$module needs the shared runtime of CUDA"; fi
done

# Modules whose libraries are here load, and the doctor says so.
"$peel" doctor --json - >doctor.json || fail "doctor: $(cat doctor.json)"
for module in "$modules"/*.so; do
  [ -e "$module" ] || continue
  if ldd "$module" | grep -q 'not found'; then continue; fi
  name="$(basename "$module" .so)"
  python3 - "${name#peel-}" <<'PY' || fail "$module does not load: $(cat doctor.json)"
import json, sys
report = json.load(open("doctor.json"))
there = report["backends"] + [one["name"] for one in report["transports"] + report["planes"]]
assert sys.argv[1] in there and sys.argv[1] not in [one["name"] for one in report["missing"]], report
PY
done

# refuses WORDS COMMAND...: exit code 1, and one sentence with these words.
refuses() {
  local words="$1"
  shift
  "$peel" "$@" >out 2>err
  [ $? -eq 1 ] || fail "$* does not exit with 1"
  grep -q -- "$words" err || fail "$* says: $(cat err)"
  [ "$(wc -l <err)" -eq 1 ] || fail "$* says more than one line: $(cat err)"
}
echo "a secret that nobody guesses" >secret
chmod 600 secret
mpi=(bench allreduce --transport mpi)
nccl=(bench allreduce --transport nccl)
xdp=(switch --plane xdp --interface lo --listen 127.0.0.1:0 --secret-file secret)

# None is there.
export PEEL_MODULES="$work/modules"
mkdir "$PEEL_MODULES"
refuses "came without the transport mpi: there is no $PEEL_MODULES/peel-mpi.so; install .*, or use --transport inprocess" "${mpi[@]}"
refuses "came without the transport nccl: .* or use --transport inprocess or mpi" "${nccl[@]}"
refuses "came without the plane xdp: .* or take --plane udp" "${xdp[@]}"
refuses "came without the backend cuda: .* or use --backend cpu" bench codec --backend cuda --elements 1000
"$peel" doctor >doctor || fail "the doctor finds something wrong where only modules are missing: $(cat doctor)"
for name in mpi nccl xdp cuda; do
  grep -q "^missing *$name: this peel came without" doctor || fail "the doctor does not miss $name: $(cat doctor)"
done
"$peel" plan --elements 1000 --density 0.01 --workers 2 --bandwidth 1gbit >/dev/null || fail "a plan without modules"

# They are there, and what they need is not: a library that is gone, a file that is no module, another version.
if command -v c++ >/dev/null; then
  echo 'extern "C" int peel_gone() { return 0; }' | c++ -shared -fPIC -x c++ - -o libpeelgone.so || fail "no library"
  for name in mpi nccl xdp; do
    echo 'extern "C" int peel_gone(); extern "C" int peel_use() { return peel_gone(); }' |
      c++ -shared -fPIC -x c++ - -x none -o "$PEEL_MODULES/peel-$name.so" -L. -lpeelgone || fail "no module"
  done
  rm libpeelgone.so
  refuses "the transport mpi needs .*: libpeelgone.so: cannot open .*; install .*openmpi" "${mpi[@]}"
  refuses "the transport nccl needs NCCL, .*libpeelgone.so.*; install libnccl2" "${nccl[@]}"
  refuses "the plane xdp needs libbpf, .*libpeelgone.so.*; install libbpf1, or take --plane udp" "${xdp[@]}"
  "$peel" doctor | tr -s "\n " " " | grep -q "missing mpi: .*libpeelgone.so" || fail "the doctor does not say what is missing"

  echo 'extern "C" { extern const char* const peel_module_mpi[] = {"0.0.1"}; }' |
    c++ -shared -fPIC -x c++ - -o "$PEEL_MODULES/peel-mpi.so" || fail "no module"
  refuses "peel-mpi.so is of version 0.0.1" "${mpi[@]}"
fi
echo "not a library" >"$PEEL_MODULES/peel-xdp.so"
refuses "the plane xdp needs libbpf, and $PEEL_MODULES/peel-xdp.so cannot be loaded" "${xdp[@]}"

[ "$failures" -eq 0 ] || exit 1
echo "the program runs without its modules"
