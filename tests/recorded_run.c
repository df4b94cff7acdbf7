/* recorded_run.c - step by step. */
#include "recorded_run.h"

#include "base/units.h"
#include "tap_main.h"

gint64
recorded_number(const cJSON *object, const char *key)
{
  return (gint64) cJSON_GetObjectItemCaseSensitive(object, key)->valuedouble;
}

static void
compare_steps(const Recording *recording, const cJSON *steps)
{
  const cJSON *step;
  guint i = 0;
  ck_assert_int_eq(cJSON_GetArraySize(steps), recording->steps->len);
  cJSON_ArrayForEach(step, steps)
  {
    const StepRecord *ours = &g_array_index(recording->steps, StepRecord, i++);
    ck_assert_int_eq(ours->peak_allocated, recorded_number(step, "max_memory_allocated"));
    ck_assert_int_eq(ours->peak_reserved, recorded_number(step, "max_memory_reserved"));
    ck_assert_int_eq(ours->end_allocated, recorded_number(step, "allocated_end"));
  }
}

Simulated *
recorded_run_compare(const char *name, char *(*plan)(const cJSON *config), cJSON **run)
{
  g_autofree char *file = g_strconcat("reference/extra/", name, ".json", NULL);
  g_autofree char *path = test_reference_path(file);
  if (path == NULL) {
    test_note("%s is not here: nothing compared", file);
    return NULL;
  }
  *run = recorded_document(path);
  const cJSON *config = cJSON_GetObjectItemCaseSensitive(*run, "config");
  const cJSON *steps = cJSON_GetObjectItemCaseSensitive(*run, "steps");
  g_autofree char *network = recorded_network(config), *text = plan(config);
  gint64 limit = recorded_int(config, "total_mib") * MIB;
  Simulated *s =
      simulation_execute(&(Simulation){network, text, NULL, 0}, cJSON_GetArraySize(steps), limit);
  compare_steps(s->recording, steps);
  return s;
}
