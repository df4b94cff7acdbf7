# report.sh - highwater report: a stored run said again, as text, JSON and tables.  What tables hold is not looked at here.
. "$top_srcdir/tests/cli/lib.sh"

same() {
  cmp "$1" "$2" >err 2>&1
}

run run tiny --output kept
cp out text
answers "a stored run is reported" 0 report kept
ok "in the words of the run" same out text
run run tiny --verbose
cp out text
answers "a stored run is reported with tables" 0 report kept --verbose
ok "the same as of the run" same out text
answers "a stored run is reported as JSON" 0 report kept --json
ok "which is the file that is there" same out kept/report.json
answers "a report is written to a file" 0 report kept --json --output report.json
ok "nothing is printed then" test ! -s out
ok "it is the same" same report.json kept/report.json

run run tiny --memory-limit 100MiB --output small
cp out text
answers "that it does not fit is the answer of a report, too" 1 report small
ok "in the same words" same out text
answers "a table of it is no such answer" 0 report small --table timeline

answers "a table is printed" 0 report kept --table timeline
ok "it says what it is" grep -q '^# highwater-timeline-1: tiny$' out
cp out whole
answers "a table of one step is printed" 0 report kept --table timeline --step 2
ok "it is a part" sh -c 'test "$(wc -l <out)" -lt "$(wc -l <whole)"'
refuses "a table has a name" "report: --table: no table 'memoir'; there are: timeline, streams" report kept --table memoir
refuses "a step is one of the run" "kept: no step 9; the run has 3" report kept --table timeline --step 9
refuses "steps count from 1" "report: --step: steps count from 1" report kept --table timeline --step=-1
refuses "a module is of a table" "report: --module and --step choose what a table tells" report kept --module layers.0
refuses "a table is no JSON" "report: --table prints one table" report kept --table timeline --json
refuses "JSON has everything" "report: --json has everything" report kept --verbose --json

mkdir recording
cp kept/recording.json recording
answers "a recording without the rest is reported" 0 report recording
ok "as far as it goes" prints "At the peak"
ok "by its title" grep -qx tiny out
answers "a recording is reported by its file" 0 report kept/recording.json
ok "in the same way" prints "At the peak"

refuses "a run is needed" "report: too few arguments" report
mkdir empty
refuses "an empty folder is no run" "empty: not a folder written by 'highwater run --output'" report empty
refuses "nowhere is no run" "nowhere: cannot be read: No such file" report nowhere
echo '{"format": "highwater-run-1", "info": {"modell": "x"}}' >kept/run.json
refuses "what stands beside a recording is read strictly" \
  "kept/run.json: unknown key 'info.modell'; did you mean 'model'?" report kept
head -c 300 recording/recording.json >small/recording.json
refuses "a truncated recording is named with its line" "small/recording.json: line " report small
refuses "an output that cannot be written is named" "nowhere/f: cannot be written" report recording --output nowhere/f
finish
