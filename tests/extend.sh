# extend.sh - the walk-through of CONTRIBUTING.md works as it is printed: in a copy of the tree its files are written and
# its commands run, the program is built, and what was added is listed and does what it should.
. "$top_srcdir/tests/cli/lib.sh"

for tool in autoreconf automake pkg-config; do
  command -v "$tool" >/dev/null || {
    skip "the walk-through works" "no $tool here"
    finish
  }
done
# It builds the whole tree once more; where that has been done in another configuration it may be left out.
[ -z "${HIGHWATER_QUICK:-}" ] || {
  skip "the walk-through works" "HIGHWATER_QUICK is set"
  finish
}
unset MAKEFLAGS MAKEOVERRIDES MAKELEVEL MFLAGS TESTS

# The sources alone: the tree may have been built in place.
mkdir tree
(cd "$top_srcdir" && find configure.ac Makefile.am m4 src models plots doc tests README.md NEWS \
  \( -name '*.[ch]' -o -name '*.cpp' -o -name '*.mk' -o -name '*.m4' -o -name '*.sh' -o -name '*.ac' -o -name '*.am' -o -name '*.json' \
  -o -name '*.gnuplot' -o -name '*.program' -o -name '*.png' -o -name '*.md' -o -name '*.1' -o -name NEWS \) ! -name registry.h -type f -exec tar -cf - {} +) |
  tar -xf - -C tree
chmod -R u+w tree

# ```LANGUAGE FILE blocks are files, ```sh blocks without a file are commands, in order.
awk '/^## Walk-through/ { inside = 1 }
     inside && /^```./ { target = NF > 1 ? "tree/" $2 : "commands"; next }
     /^```/ { target = ""; next }
     target != "" { print > target }' "$top_srcdir/CONTRIBUTING.md"
ok "files and commands have been found" test -s commands -a -s tree/src/strategy/average.c -a -s tree/src/network/family_arcee.c
(cd tree && sh -e ../commands) >out 2>err
ok "the commands run" test $? -eq 0

(cd tree && autoreconf -fi && ./configure -q CFLAGS='-O0 -Werror') >out 2>err
ok "the tree can be configured" test $? -eq 0
(cd tree && make -s -j2) >out 2>err
ok "the program is built without a warning" test $? -eq 0 -a ! -s err

highwater=$scratch/tree/highwater
HIGHWATER_MODELS=$scratch/tree/models
top_srcdir=$scratch/tree
top_builddir=$scratch/tree
cp tree/arcee.json tree/average.json .
answers "families are listed" 0 list family
ok "the new family among them" prints "  arcee "
answers "strategies are listed" 0 list strategy
ok "the new strategy among them" prints "  average "
ok "and its option" prints "average.flat: true | false (default true)"

# Embedding and output of 1000 x 512, four blocks of four 512 x 512, 512 x 2048 and back with two norms, one more norm.
parameters=$((2 * 1000 * 512 + 4 * (4 * 512 * 512 + 2 * 512 * 2048 + 2 * 512) + 512))
answers "the family trains under FSDP2" 0 run arcee.json --plan fsdp2 --json
ok "with its parameters" grep -qE "\"parameters\":[[:space:]]+$parameters," out
answers "the strategy trains a known network" 0 run tiny --plan average.json
answers "it averages every parameter by itself" 0 run arcee.json --plan average.json --json
ok "in one all-reduce each: 4 blocks of 8, and 3 around them" grep -qE '"count":[[:space:]]+35,' out
answers "it averages all of them at once" 0 run arcee.json --plan average.json --set average.flat=true --json
ok "in one buffer" grep -qE "\"bytes\":[[:space:]]+$((4 * parameters))," out
answers "the Program keeps the order" 0 lower arcee.json --plan average.json --steps 3 --check
refuses "it shards nothing" "average.json: key 'mesh.shard': average does not shard" run tiny --plan average.json --set mesh.shard=2
refuses "its section is its own" "key 'average': strategy 'fsdp2' does not use this section, only average" \
  run tiny --plan fsdp2 --set average.flat=true

# Its tests, where Check is.
(cd tree && make -s -j2 tests/check_op tests/check_mish tests/fuzz/fuzz_size) >out 2>err
ok "the tests are built" test $? -eq 0
tree/tests/check_mish >out 2>err
ok "the unit test passes" sh -c 'grep -q "^ok 1 " out && ! grep -q "^not ok" out'
tree/tests/check_op >out 2>err
ok "the op does what its case says" sh -c 'grep -q "^1\.\." out && ! grep -q "mish (" out'
sh tree/tests/cli/arcee.sh >out 2>err
ok "the shell test passes" sh -c 'grep -q "^1\.\.3" out && ! grep -q "^not ok" out'
for input in tree/tests/fuzz/corpus/size/*; do
  tree/tests/fuzz/fuzz_size "$input" >out 2>err
  ok "the fuzz target survives ${input##*/}" test $? -eq 0
done
GOLDEN_UPDATE=1 sh tree/tests/golden/run.sh >out 2>err
ok "the golden case is written" grep -q '^FITS' tree/tests/golden/arcee/expected.txt
finish
