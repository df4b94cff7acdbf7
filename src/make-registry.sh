#!/bin/sh
# make-registry.sh - writes a registry header from a list of source files.
#
#   make-registry.sh OUTPUT HEADER TYPE SYMBOL FILE-PREFIX SOURCE...
#
# For each SOURCE .../PREFIXname.c the header declares `extern const TYPE SYMBOL_name` and adds X(name) to the macro
# SYMBOL_LIST(X), in the order of the sources; HEADER, which declares TYPE, is included.
set -eu
output=$1 header=$2 type=$3 symbol=$4 prefix=$5
shift 5

names=
for source; do
  name=${source##*/}
  name=${name%.c}
  name=${name#"$prefix"}
  case " $names " in
  *" $name "*) echo "$0: $source is listed twice" >&2 && exit 1 ;;
  esac
  names="$names $name"
done
upper=$(printf %s "$symbol" | LC_ALL=C tr a-z A-Z)

{
  echo "/* Generated from src/local.mk. */"
  echo "#ifndef HIGHWATER_${upper}_REGISTRY_H"
  echo "#define HIGHWATER_${upper}_REGISTRY_H"
  echo "#include \"$header\""
  for name in $names; do echo "extern const $type ${symbol}_$name;"; done
  printf '#define %s_LIST(X)' "$upper"
  for name in $names; do printf ' X(%s)' "$name"; done
  echo
  echo "#endif"
} >"$output.tmp"
mv "$output.tmp" "$output"
