# tutorial.sh - the tutorial's commands print what it shows; its measured run is the one in traces/, its script the one beside it.
. "$top_srcdir/tests/cli/lib.sh"
. "$top_srcdir/tests/document.sh"
[ -z "${HIGHWATER_QUICK:-}" ] || {
  skip "the tutorial" "HIGHWATER_QUICK is set"
  finish
}
cp "$top_srcdir/traces/training_fsdp2.pickle.gz" "$document/measured.pickle.gz"
document doc/tutorial.md
ok "the script that is shown recorded the trace" cmp "$document/train.py" "$top_srcdir/traces/train_fsdp2.py"
finish
