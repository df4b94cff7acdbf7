# plot.sh - highwater plot: odd names and short times, with whatever gnuplot the machine has.
. "$top_srcdir/tests/cli/lib.sh"

run run tiny --steps 2 --output kept
ok "a run to draw" test "$status" -eq 0
refuses "steps count from 1" "steps count from 1" plot timeline kept -o x.svg --step 0
refuses "pictures are not for the terminal" "-o -: a figure goes to a file" plot timeline kept -o - --terminal svg
ok "and no file has that name" test ! -e ./-
refuses "a time after the run" "kept: nothing happens between --from and --to" plot timeline kept -o x.svg --from 50s
refuses "also one that ends later still" "kept: nothing happens between" plot streams kept -o x.svg --from 50s --to 60s
refuses "a time before the first allocation" "kept: nothing is allocated before --to" plot timeline kept -o x.svg --to 1ns
refuses "a figure of a sweep is not drawn of a run" "kept: the figure groups is of a SWEEP, and there is no results.tsv in this folder" plot groups kept -o x.svg

# Says what gnuplot says where it fails: the warnings before it are none of the reason.
cat >warns <<'EOF'
#!/bin/sh
echo 'line 0: warning: iconv failed to convert degree sign' >&2
echo 'Warning:  Not enough data points.' >&2
echo '"x.gnuplot" line 7: undefined value' >&2
exit 1
EOF
chmod +x warns
HIGHWATER_GNUPLOT=$PWD/warns
export HIGHWATER_GNUPLOT
refuses "gnuplot's error is told, not its warnings" 'gnuplot: "x.gnuplot" line 7: undefined value' plot timeline kept -o x.svg
unset HIGHWATER_GNUPLOT

if ! command -v gnuplot >/dev/null; then
  skip "figures" "there is no gnuplot"
  finish
  exit
fi
answers "- is here" 0 plot timeline kept -o - --terminal dumb
ok "as text" test -s out
# Within one kernel, between two, before anything is allocated: gnuplot 5.4 crashes on labels that are all undefined.
for times in "20ms 20.000001ms" "20ms 20.05ms" "0 1ns" "0 0.1ms" "38.0773ms 38.0777ms" "1ms 40ms"; do
  answers "streams from ${times% *} to ${times#* }" 0 plot streams kept -o x.svg --from "${times% *}" --to "${times#* }"
done
GNUTERM=no-such-terminal
HOME=$PWD
export GNUTERM HOME
echo 'exit status 1' >.gnuplot
answers "settings of gnuplot's user change nothing" 0 plot timeline kept -o x.svg
unset GNUTERM

# A file name may have any byte but one.
for name in "$(printf 'a\nb')" "$(printf 'a\033[31mb')" "it's" 'a"b' '$(exit)' ; do
  cp "$HIGHWATER_MODELS/network/tiny.json" "$name.json"
  rm -rf swept odd
  answers "a network with an odd name is swept" 0 sweep "$name.json" --steps 2 --vary mesh.shard=4,8 --output swept
  ok "the title of the table is one line" sh -c 'sed -n 2p swept/results.tsv | grep -q "^# variant verdict "'
  run run "$name.json" --steps 2 --output odd
  for figure in "timeline odd" "sweep swept" "groups swept"; do
    answers "and drawn: ${figure% *}" 0 plot ${figure% *} ${figure#* } -o x.svg
    ok "without characters that XML lacks" sh -c '! tr -d "\t\n\r" <x.svg | LC_ALL=C grep -q "[[:cntrl:]]"'
  done
done
finish
