# compare.sh - runs the benchmarks named on the command line and sets their figures beside the recorded ones.
#   compare.sh RECORDED PROGRAM...     with BENCH_UPDATE=1 the figures are written to RECORDED
# Ends with 1 if a benchmark failed or was more than BENCH_LIMIT (default 1.5) times as slow as recorded.
set -u
recorded=$1
shift
now=$(mktemp) || exit 1
trap 'rm -f "$now"' EXIT
status=0
for program; do "$program" >>"$now" || status=1; done

awk -v limit="${BENCH_LIMIT:-1.5}" '
  /^#/ { if (NR != FNR) print; next }
  NR == FNR { before[$1] = $2; next }
  !headed++ { printf "%-34s %10s %10s %-9s %s\n", "benchmark", "now", "recorded", "unit", "speed" }
  {
    ratio = $1 in before && before[$1] > 0 && $2 > 0 ? ($3 ~ /\/s$/ ? $2 / before[$1] : before[$1] / $2) : 0
    slow = ratio > 0 && ratio * limit < 1
    printf("%-34s %10s %10s %-9s %s\n", $1, $2, $1 in before ? before[$1] : "-", $3,
           ratio > 0 ? sprintf("%.2f%s", ratio, slow ? "  SLOWER" : "") : "")
    failed = failed || slow
  }
  END { exit failed }' "$recorded" "$now" || status=1

if [ -n "${BENCH_UPDATE:-}" ]; then
  { grep '^#' "$recorded"; grep -v '^#' "$now"; } >"$recorded.new" && mv "$recorded.new" "$recorded" && status=0
fi
exit $status
