# usage.sh - what all commands have in common: help, version, wrong usage, output that cannot be written.
. "$top_srcdir/tests/cli/lib.sh"

refuses "no command is wrong usage" "no command given"
refuses "an unknown command is refused" "no command 'zzzzzzzz'" zzzzzzzz
refuses "a message is one line whatever it quotes" "no command 'a b'" "a
b"
answers "--version is answered" 0 --version
ok "the version is that of the package" grep -qx "highwater [0-9.]*" out
answers "--help is answered" 0 --help
cp out help
ok "help starts with the usage" grep -q "^Usage: highwater COMMAND" help

for command in $(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' help); do
  answers "$command --help is answered" 0 "$command" --help
  ok "$command --help starts with its usage" sh -c "head -n 1 out | grep -q '^Usage: highwater $command'"
  refuses "$command refuses an unknown option" "Unknown option --no-such-option" "$command" --no-such-option
  refuses "a misspelt $command is recognized" "did you mean '$command'?" "${command}x"
done

if [ -c /dev/full ] && [ -w /dev/full ]; then
  "$highwater" --help >/dev/full 2>err
  status=$?
  : >out
  ok "an output that cannot be written is an error" is_refusal "standard output: cannot be written"
else
  skip "an output that cannot be written is an error" "no device /dev/full"
fi
finish
