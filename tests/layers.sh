# layers.sh - modules include downwards only, by the table in CONTRIBUTING.md; src/engine knows nothing of training.
. "$top_srcdir/tests/cli/lib.sh"

# "MODULE LEVEL" a line, from the indented lines "    LEVEL  MODULE MODULE ..." of the chapter on layers.
sed -n '/^## Layers/,/^## /p' "$top_srcdir/CONTRIBUTING.md" |
  awk '/^    [0-9]+ / { for (i = 2; i <= NF; i++) print $i, $1 }' >levels
ok "the table of layers has been found" test "$(wc -l <levels)" -ge 17

# Every include of our own: FROM-MODULE TO-MODULE FILE.
(cd "$top_srcdir/src" && grep -H '^#include "' */*.[ch]) |
  sed -n 's|^\([a-z_]*\)/\([^:]*\):#include "\([a-z_]*\)/.*|\1 \3 \1/\2|p' >includes
ok "the sources include each other" test -s includes

(cd "$top_srcdir/src" && grep -H '^#include "[^/]*"' */*.[ch]) >out
ok "headers are included by their module's name" test ! -s out

(cd "$top_srcdir/src" && for folder in */; do echo "${folder%/}"; done) |
  awk 'NR == FNR { level[$1] = 1; next } !($1 in level) { print $1 ": not in the table" }' levels - >out
ok "every module has its place in the table" test ! -s out

awk 'NR == FNR { level[$1] = $2; next }
     $1 != $2 && level[$1] <= level[$2] { print "src/" $3 " includes " $2 ", which is not below " $1 }' levels includes >out
ok "a module includes only modules of lower layers" test ! -s out

# The words may not hide in identifiers: n_ranks, rank_count, TENSOR.
grep -nEi '(^|[^a-z])(rank|tensor|kernel|collective)s?([^a-z]|$)' "$top_srcdir"/src/engine/*.[ch] >out
ok "no word of machine learning stands in src/engine" test ! -s out
finish
