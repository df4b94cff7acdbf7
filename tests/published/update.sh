#!/bin/sh
# update.sh PROGRAM DOCUMENT - puts what PROGRAM --markdown prints between the document's two marks.
set -e
program=$1 document=$2
begin='<!-- published: begin -->' end='<!-- published: end -->'
grep -qxF "$begin" "$document" && grep -qxF "$end" "$document" ||
  { echo "$document has no marks" >&2; exit 1; }
new=`mktemp -d`
trap 'rm -rf "$new"' EXIT
"$program" --markdown >"$new/table"
grep -q '^| source' "$new/table" || { echo "no table: the reference data are not here" >&2; exit 1; }
{
  sed "/^$begin\$/q" "$document"
  cat "$new/table"
  sed -n "/^$end\$/,\$p" "$document"
} >"$new/document"
cat "$new/document" >"$document"
