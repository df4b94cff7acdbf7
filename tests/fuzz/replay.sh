# replay.sh - every stored input of every fuzz target, one case each; $fuzzers lists the targets.
. "$top_srcdir/tests/cli/lib.sh"

for target in $fuzzers; do
  name=${target##*/fuzz_}
  ok "$name has a corpus" test -d "$top_srcdir/tests/fuzz/corpus/$name"
  for input in "$top_srcdir/tests/fuzz/corpus/$name"/*; do
    "$top_builddir/$target" "$input" >out 2>err
    status=$?
    ok "$name survives ${input##*/}" test "$status" -eq 0
  done
done
finish
