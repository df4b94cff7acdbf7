# run.sh - whole runs: tests/golden/NAME/args is run from the source tree's root and must print expected.txt.
# args is one shell-quoted line; expected.txt holds both outputs and, if it is not 0, the exit status.
# make update-golden (GOLDEN_UPDATE=1) writes what is printed now.
. "$top_srcdir/tests/cli/lib.sh"

print_run() (
  cd "$top_srcdir" || exit 1
  eval "set -- $(cat "$1/args")"
  "$highwater" "$@" 2>&1
  code=$?
  [ "$code" -eq 0 ] || echo "exit status $code"
)

for folder in "$top_srcdir"/tests/golden/*/; do
  folder=${folder%/}
  print_run "$folder" >now
  if [ -n "${GOLDEN_UPDATE:-}" ]; then
    cmp -s now "$folder/expected.txt" || cp now "$folder/expected.txt"
  fi
  diff -u "$folder/expected.txt" now >out 2>err
  ok "${folder##*/} prints what it should" test $? -eq 0
done
finish
