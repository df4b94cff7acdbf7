# lib.sh - TAP and a scratch folder for shell tests; sourced first by each of them.
#
#   run ARGS...                  runs highwater in the scratch folder; leaves $status and the files out and err
#   with_python ARGS...          runs a Python likewise: python3, or $HIGHWATER_PYTHON with $HIGHWATER_PYTHON_LIBRARIES to load
#   ok NAME COMMAND...           a case that passes when the command succeeds
#   answers NAME STATUS ARGS...  highwater ARGS ends with STATUS (0 or 1) and is silent on standard error
#   refuses NAME TEXT ARGS...    highwater ARGS is refused: exit 2, no output, one line on standard error with TEXT in it
#   prints TEXT                  the last run's output contains TEXT (for use with ok)
#   skip NAME REASON             a case that cannot be tried here
#   finish                       the last line of every test
#
# POSIX sh; variables named lib_... are its own.  The tree is $top_srcdir, the program $highwater, a Python $python; nothing is written outside the scratch folder.

set -u
: "${top_srcdir:?make check sets it; by hand: top_srcdir=/path/to/source sh TEST}"
: "${top_builddir:=$(pwd)}"
: "${HIGHWATER_MODELS:=$top_srcdir/models}"
export top_srcdir top_builddir HIGHWATER_MODELS
LC_ALL=C
export LC_ALL
highwater=$top_builddir/highwater
python=${HIGHWATER_PYTHON:-python3}
cases=0
status=0

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
cd "$scratch" || exit 1

# Prints the result $2 ("ok" or "not ok") of case $1; after a failure what the last run said, as comments.
report() {
  cases=$((cases + 1))
  echo "$2 $cases - $1"
  if [ "$2" = "not ok" ]; then
    echo "# exit status $status"
    for lib_file in out err; do
      [ -s "$lib_file" ] && head -n 20 "$lib_file" | sed "s/^/# $lib_file: /"
    done
  fi
  return 0
}

ok() {
  lib_name=$1
  shift
  if "$@"; then report "$lib_name" ok; else report "$lib_name" "not ok"; fi
}

run() {
  "$highwater" "$@" >out 2>err
  status=$?
}

with_python() {
  LD_LIBRARY_PATH=${HIGHWATER_PYTHON_LIBRARIES-${LD_LIBRARY_PATH-}} PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 \
    "$python" "$@" >out 2>err
  status=$?
}

prints() {
  grep -qF -e "$1" out
}

is_answer() {
  [ "$status" -eq "$1" ] && [ ! -s err ]
}

answers() {
  lib_name=$1 lib_expected=$2
  shift 2
  run "$@"
  ok "$lib_name" is_answer "$lib_expected"
}

is_refusal() {
  [ "$status" -eq 2 ] && [ ! -s out ] && [ "$(wc -l <err)" -eq 1 ] &&
    grep -q '^highwater: ' err && grep -qF -e "$1" err
}

refuses() {
  lib_name=$1 lib_text=$2
  shift 2
  run "$@"
  ok "$lib_name" is_refusal "$lib_text"
}

skip() {
  cases=$((cases + 1))
  echo "ok $cases - $1 # SKIP $2"
}

finish() {
  echo "1..$cases"
  exit 0
}
