/* sweep.c - a sweep: its variants, and what of them is the same. */
#include "search/sweep.h"

#include <string.h>

#include "base/units.h"
#include "search/sweep_facts.h"
#include "search/sweep_verification.h"

static void
variant_clear(gpointer data)
{
  SweepVariant *variant = data;
  g_free(variant->label);
  g_ptr_array_unref(variant->owned);
  outcome_clear(&variant->outcome);
  sweep_verification_clear(&variant->verification);
}

void
sweep_free(Sweep *sweep)
{
  if (sweep == NULL)
    return;
  vary_free(sweep->vary);
  g_array_unref(sweep->variants);
  sweep_facts_free(sweep->facts);
  g_array_unref(sweep->inputs);
  g_free(sweep->title);
  g_free(sweep);
}

SweepVariant *
sweep_variant(const Sweep *sweep, guint i)
{
  return &g_array_index(sweep->variants, SweepVariant, i);
}

/* ---- keys that are not the plan's ---- */

/* A value of the key for a request.  place: of the input that was read for it, or NULL. */
typedef struct {
  const char *key;
  gboolean is_input; /* a preset or a file */
  gboolean (*set)(RunRequest *request, const char *value, const InputText *input, GError **error);
} RequestKey;

static gboolean
set_network(RunRequest *request, const char *value, const InputText *input, GError **error)
{
  (void) value;
  (void) error;
  request->inputs.network = *input;
  return TRUE;
}

static gboolean
set_cluster(RunRequest *request, const char *value, const InputText *input, GError **error)
{
  (void) value;
  (void) error;
  request->inputs.cluster = *input;
  return TRUE;
}

static gboolean
set_steps(RunRequest *request, const char *value, const InputText *input, GError **error)
{
  (void) input;
  char *end;
  gint64 steps = g_ascii_strtoll(value, &end, 10);
  request->steps = (int) CLAMP(steps, 0, RUN_STEPS_MOST + 1);
  if (*end == '\0' && steps >= 1 && steps <= RUN_STEPS_MOST)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "--vary steps: %.60s is not in 1..%d",
              value, RUN_STEPS_MOST);
  return FALSE;
}

static gboolean
set_memory_limit(RunRequest *request, const char *value, const InputText *input, GError **error)
{
  (void) input;
  if (!parse_size(value, &request->memory_limit, error)) {
    g_prefix_error(error, "--vary memory_limit: ");
    return FALSE;
  }
  if (request->memory_limit > 0)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "--vary memory_limit: a limit is at least one byte");
  return FALSE;
}

static const RequestKey request_keys[] = {
    {"network", TRUE, set_network},
    {"cluster", TRUE, set_cluster},
    {"steps", FALSE, set_steps},
    {"memory_limit", FALSE, set_memory_limit},
};

static const RequestKey *
find_request_key(const char *key)
{
  for (guint i = 0; i < G_N_ELEMENTS(request_keys); i++)
    if (g_str_equal(request_keys[i].key, key))
      return &request_keys[i];
  return NULL;
}

static void
input_clear(gpointer data)
{
  input_text_clear(data);
}

/* Reads every file that is varied, in order of axes and values. */
static gboolean
read_inputs(Sweep *sweep, GError **error)
{
  for (guint i = 0; i < sweep->vary->axes->len; i++) {
    const VaryAxis *axis = g_ptr_array_index(sweep->vary->axes, i);
    const RequestKey *key = find_request_key(axis->key);
    for (guint k = 0; key != NULL && key->is_input && k < axis->values->len; k++) {
      InputText input = {0};
      const char *name = g_ptr_array_index(axis->values, k);
      gboolean is_read = input_text_read(axis->key, name, &input, error);
      g_array_append_val(sweep->inputs, input);
      if (!is_read) {
        g_prefix_error(error, "--vary %s: ", axis->key);
        return FALSE;
      }
    }
  }
  return TRUE;
}

/* What was read for a value. */
static const InputText *
input_of(const Sweep *sweep, guint axis, const char *value)
{
  guint before = 0;
  for (guint i = 0; i <= axis; i++) {
    const VaryAxis *a = g_ptr_array_index(sweep->vary->axes, i);
    const RequestKey *key = find_request_key(a->key);
    if (key == NULL || !key->is_input)
      continue;
    for (guint k = 0; k < a->values->len; k++, before++)
      if (i == axis && g_ptr_array_index(a->values, k) == value)
        return &g_array_index(sweep->inputs, InputText, before);
  }
  return NULL;
}

/* ---- variants ---- */

static gboolean
apply_values(Sweep *sweep, guint number, SweepVariant *variant, GError **error)
{
  for (guint i = 0; i < sweep->vary->axes->len; i++) {
    const VaryAxis *axis = g_ptr_array_index(sweep->vary->axes, i);
    const char *value = vary_value(sweep->vary, number, i);
    const RequestKey *key = find_request_key(axis->key);
    if (key == NULL)
      g_ptr_array_add(variant->owned, g_strconcat(axis->key, "=", value, NULL));
    else if (!key->set(&variant->request, value, input_of(sweep, i, value), error))
      return FALSE;
  }
  g_ptr_array_add(variant->owned, NULL);
  return TRUE;
}

static gboolean
form_variants(Sweep *sweep, const SweepRequest *request, GError **error)
{
  for (guint i = 0; i < sweep->vary->count; i++) {
    SweepVariant variant = {
        .label = vary_label(sweep->vary, i),
        .owned = g_ptr_array_new_with_free_func(g_free),
        .request = *request->base,
    };
    gboolean is_right = apply_values(sweep, i, &variant, error);
    g_array_append_val(sweep->variants, variant);
    if (!is_right)
      return FALSE;
  }
  return TRUE;
}

static gboolean
check_hold(const SweepRequest *request, const Vary *vary, GError **error)
{
  for (guint i = 0; request->hold_global_batch && i < vary->axes->len; i++)
    if (g_str_equal(((VaryAxis *) g_ptr_array_index(vary->axes, i))->key, "accumulation.steps")) {
      g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                  "--hold-global-batch: chooses accumulation.steps, which --vary gives too");
      return FALSE;
    }
  return TRUE;
}

Sweep *
sweep_new(const SweepRequest *request, GError **error)
{
  g_autoptr(Sweep) sweep = g_new0(Sweep, 1);
  sweep->headroom = request->headroom;
  sweep->fastest = -1;
  sweep->variants = g_array_new(FALSE, TRUE, sizeof(SweepVariant));
  g_array_set_clear_func(sweep->variants, variant_clear);
  sweep->inputs = g_array_new(FALSE, TRUE, sizeof(InputText));
  g_array_set_clear_func(sweep->inputs, input_clear);
  sweep->facts = sweep_facts_new();
  if (!input_check_network(&request->base->inputs.network, error))
    return NULL;
  sweep->vary = vary_parse(request->vary, error);
  if (sweep->vary == NULL || !check_hold(request, sweep->vary, error) ||
      !read_inputs(sweep, error) || !form_variants(sweep, request, error) ||
      !sweep_read_plans(sweep, request, error))
    return NULL;
  return g_steal_pointer(&sweep);
}
