# documents.sh - the examples of the documents run as they are printed; and what would be wrong there is found.
. "$top_srcdir/tests/cli/lib.sh"
. "$top_srcdir/tests/document.sh"

update=${DOCUMENT_UPDATE:-} # of the documents below, not of those made here
DOCUMENT_UPDATE=

# ---- how they are compared ----

parts() {
  ! document_agrees "$1" "$2"
}
# compared COMMAND NAME SHOWN PRINTED
compared() {
  printf "$3" >shown
  printf "$4" >printed
  ok "$2" "$1" shown printed
}
compared document_agrees "equal lines agree" 'a\nb\n' 'a\nb\n'
compared document_agrees "nothing agrees with nothing" '' ''
compared document_agrees "lines in the middle may be left out" 'a\n...\nd\n' 'a\nb\nc\nd\n'
compared document_agrees "or none at all" 'a\n...\nb\n' 'a\nb\n'
compared document_agrees "or all of them" '...\n' 'a\nb\n'
compared document_agrees "or the last ones" 'a\n  ...\n' 'a\nb\nc\n'
compared document_agrees "what follows is found where it stands last" '...\nb\n' 'b\nc\nb\n'
compared document_agrees "left out twice" 'a\n...\nc\n...\ne\n' 'a\nb\nc\nc\nd\ne\n'
compared parts "another line is found" 'a\nb\n' 'a\nc\n'
compared parts "a line too few is found" 'a\nb\n' 'a\n'
compared parts "a line too many is found" 'a\n' 'a\nb\n'
compared parts "output where none is shown is found" '' 'a\n'
compared parts "no output where some is shown is found" 'a\n' ''
compared parts "a line after those left out is found missing" 'a\n...\nd\n' 'a\nb\nc\n'
compared parts "lines in another order are found" '...\nb\n...\na\n...\n' 'a\nb\n'

# ---- a document with all that may be in one ----

mkdir -p tree/doc
cat >tree/doc/all.md <<'END'
```text
$ false
```
```json plan.json
{"strategy": "fsdp2"}
```
```console
$ cat plan.json
{"strategy": "fsdp2"}
$ echo one \
    two >left; (exit 1)
$ echo $?
1
$ cat left
...
```

```console
$ cat left
one two
$ highwater run nothing
highwater: nothing: no such network preset, and no file of that name; presets are listed by 'highwater list network'
```
END
# In a shell of its own, so that a case that is to fail does not fail here.
try() {
  (
    top_srcdir=$scratch/tree cases=0
    document doc/all.md
  ) >tried
}
try
ok "all kinds of examples pass" sh -c '! grep -q "^not ok" tried && grep -q "^ok 7 " tried && ! grep -q "^ok 8 " tried'
sed 's/^one two$/one three/' tree/doc/all.md >changed && mv changed tree/doc/all.md
try
ok "one that is not true fails" grep -q '^not ok 6 - doc/all.md:19: cat left$' tried
ok "and it is said where" grep -q '^# out: shown:   one three$' tried
DOCUMENT_UPDATE=1
try
DOCUMENT_UPDATE=
ok "it is brought up to date" grep -qx 'one two' tree/doc/all.md
ok "lines that are left out stay so" grep -qx '\.\.\.' tree/doc/all.md
try
ok "and then passes" sh -c '! grep -q "^not ok" tried'
printf '```console\n$ (exit 2)\n```\n' >tree/doc/all.md
try
ok "a command that goes wrong without a word fails" grep -q '^not ok 2' tried
printf 'no examples\n' >tree/doc/all.md
try
ok "a document without examples fails" grep -q '^not ok 1' tried

# ---- the documents ----

[ -z "${HIGHWATER_QUICK:-}" ] || {
  skip "the documents" "HIGHWATER_QUICK is set"
  finish
}

# Those with a test of their own run there.
DOCUMENT_UPDATE=$update
cd "$top_srcdir" || exit 1
for each in README.md doc/*.md; do
  grep -q '^```console' "$each" || continue
  grep -q "^document $each" tests/cli/*.sh || echo "$each"
done >"$scratch/documents"
cd "$scratch" || exit 1
while read -r each; do
  rm -rf "$document"
  mkdir "$document"
  document "$each"
done <documents
finish
