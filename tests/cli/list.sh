# list.sh - highwater list: presets, families and strategies with a line each, text and JSON; wrong kinds; a broken file
# among the presets.
. "$top_srcdir/tests/cli/lib.sh"

answers "everything is listed" 0 list
cp out all
for kind in network plan cluster device fabric; do
  answers "$kind presets are listed" 0 list "$kind"
  for file in "$top_srcdir/models/$kind"/*.json; do
    name=${file##*/}
    ok "$kind ${name%.json} has a line" grep -qE "^  ${name%.json} +[A-Za-z0-9]" out
    ok "$kind ${name%.json} is among all" grep -qE "^  ${name%.json} " all
  done
done

answers "families are listed" 0 list family
for source in "$top_srcdir"/src/network/family_*.c; do
  name=${source##*/family_}
  ok "family ${name%.c} has a line" grep -qE "^  ${name%.c} +[A-Za-z0-9]" out
done
answers "strategies are listed" 0 list strategy
for name in $(sed -n 's/^const Strategy strategy_\([a-z0-9_]*\) = {$/\1/p' "$top_srcdir"/src/strategy/*.c); do
  ok "strategy $name has a line" grep -qE "^  $name +[A-Za-z0-9]" out
done
ok "options have what is allowed and their default" prints "fsdp.embedding: root | own | untied (default \"root\")"
answers "algorithms are listed" 0 list algorithm
for name in ring tree nvls nvls_tree pat p2p; do
  ok "algorithm $name has a line" grep -qE "^  $name +[A-Za-z0-9]" out
done
answers "strategies can be JSON" 0 list strategy --json
ok "the JSON has the options" prints '"ddp.bucket_cap_mb"'
ok "no line is wider than a terminal" sh -c '! grep -qE "^.{101}" all'

answers "the list can be JSON" 0 list network --json
ok "the JSON says its format" prints highwater-list-1
ok "the JSON has the presets" prints llama-3.1-405b
ok "the JSON of one kind has no other" sh -c '! grep -q h100-8 out'

refuses "an unknown kind names the nearest" "no kind 'networks' (did you mean 'network'?)" list networks
refuses "one kind at most" "too many arguments" list network plan

mkdir -p models/plan
echo '{"_summary": "mine"}' >models/plan/good.json
echo '{' >models/plan/broken.json
HIGHWATER_MODELS=$scratch/models
answers "a broken file does not hide the others" 0 list plan
ok "the good preset has its line" grep -qE "^  good +mine" out
ok "the broken one says why" grep -qE "^  broken +.*line" out
HIGHWATER_MODELS=/nowhere
refuses "a folder of presets that is not there is named" "HIGHWATER_MODELS: /nowhere: there is no such folder" list
refuses "when a preset is asked for, too" "HIGHWATER_MODELS: /nowhere: there is no such folder" run tiny
finish
