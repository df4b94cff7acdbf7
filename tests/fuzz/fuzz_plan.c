/* fuzz_plan.c - any bytes as a plan; what follows a zero byte is an assignment (--set). */
#include "fuzz.h"
#include "plan_tables.h"
#include <string.h>

static void
check_options(const PlanSpec *spec)
{
  for (guint i = 0; spec->section && spec->section->options[i].key; i++) {
    const OptionInfo *option = &spec->section->options[i];
    const OptionValue *value = plan_spec_option(spec, option->key);
    if (option->type == OPTION_INT)
      g_assert(value->number >= option->min && value->number <= option->max);
    if (option->type == OPTION_ENUM)
      g_assert(value->number >= 0 && option->names[value->number]);
  }
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  const guint8 *zero = size > 0 ? memchr(data, 0, size) : NULL;
  gsize length = zero ? (gsize) (zero - data) : size;
  g_autofree char *assignment = zero ? g_strndup((const char *) zero + 1, size - length - 1) : NULL;
  const char *const assignments[] = {assignment, NULL};

  g_autoptr(GError) error = NULL;
  g_autoptr(PlanSpec) spec =
      plan_spec_parse("input", (const char *) data, length, assignments, test_strategies, &error);
  g_assert((spec == NULL) == (error != NULL));
  if (!spec)
    return 0;
  g_assert((gint64) spec->shard * spec->replicate <= 1 << 24);
  g_assert(spec->micro_batch >= 1 && spec->sequence_length >= 1 && spec->accumulation.steps >= 1);
  check_options(spec);
  return 0;
}
