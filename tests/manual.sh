# manual.sh - the manual page knows every command and option, and its examples run.
. "$top_srcdir/tests/cli/lib.sh"
page=$top_srcdir/doc/highwater.1
# Plain text: \- is a minus, font changes and macros go.
sed 's/\\-/-/g; s/\\f[BIRP]//g' "$page" >text

run --help
for command in $(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' out); do
  # A command's chapter: from ".SS NAME ..." to the next heading.
  awk -v command="$command" '/^\.S[SH]/ { inside = $2 == command } inside' text >chapter
  ok "the manual page describes $command" test -s chapter
  run "$command" --help
  for option in $(grep -oE -- '^  (-[a-zA-Z], )?--[a-z-]+' out | grep -oE -- '--[a-z-]+'); do
    [ "$option" = --help ] || ok "the manual page describes $command $option" grep -qE -- "$option([^a-z-]|\$)" chapter
  done
done

# Examples: the lines between .EX and .EE that call the program.
sed -n '/^\.EX/,/^\.EE/p' text | grep '^highwater ' >examples
ok "the manual page has examples" test -s examples
while read -r line; do
  eval "run ${line#highwater }"
  ok "the example runs: $line" is_answer 0
done <examples
finish
