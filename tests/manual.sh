# manual.sh - the manual page describes every command and option, and its examples run.
. "$top_srcdir/tests/cli/lib.sh"
page=$top_srcdir/doc/highwater.1
# Plain text: \- is a minus; font changes and the quotes of macros go.
sed 's/\\-/-/g; s/\\f[BIRP]//g; s/"//g' "$page" >text

run --help
sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' out >commands
while read -r command; do
  # A command's chapter: from ".SS NAME ..." to the next heading.
  awk -v command="$command" '/^\.S[SH]/ { inside = $2 == command } inside' text >chapter
  ok "the manual page describes $command" test -s chapter
  run "$command" --help
  for option in $(grep -oE -- '^  (-[a-zA-Z], )?--[a-z-]+' out | grep -oE -- '--[a-z-]+'); do
    [ "$option" = --help ] || ok "the manual page describes $command $option" grep -qE -e "$option([^a-z-]|\$)" chapter
  done
done <commands

# Examples: the lines between .EX and .EE, in the order of the page; an echo makes what the next ones read.
sed -n '/^\.EX/,/^\.EE/p' text | grep -E '^(highwater|echo) ' >examples
while read -r program command arguments; do
  example="$program $command $arguments"
  if [ "$program" = echo ]; then
    eval "$example"
  elif grep -qx -e "$command" commands; then
    eval "run $command $arguments"
    ok "the example runs: $example" is_answer 0
  else
    skip "the example runs: $example" "no command $command in this program"
  fi
done <examples
finish
