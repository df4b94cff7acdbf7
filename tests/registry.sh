# registry.sh - the generated headers: order, prefixes, an empty list, a list that changes.
. "$top_srcdir/tests/cli/lib.sh"

generate() {
  sh "$top_srcdir/src/make-registry.sh" registry.h "$@" 2>err
}

generate strategy/strategy.h Strategy strategy "" src/strategy/zeta.c src/strategy/alpha.c
cp registry.h out
ok "names come from the files, in the order of the list" prints "#define STRATEGY_LIST(X) X(zeta) X(alpha)"
ok "each is declared" prints "extern const Strategy strategy_alpha;"
ok "the type's header is included" prints '#include "strategy/strategy.h"'

generate network/network_family.h NetworkFamily family family_ src/network/family_gpt2.c
cp registry.h out
ok "the prefix of the files is no part of the name" prints "extern const NetworkFamily family_gpt2;"
ok "a new list replaces the old" sh -c "! grep -q zeta registry.h"

generate cli/command.h Command command cmd_
cp registry.h out
ok "an empty list gives an empty macro" grep -qx '#define COMMAND_LIST(X)' out
ok "nothing but the header is left" test "$(ls)" = "err
out
registry.h"
finish
