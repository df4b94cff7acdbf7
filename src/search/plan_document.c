/* plan_document.c - a plan rewritten for another strategy and mesh, and as the few keys that say
 * it. */
#include "search/plan_document.h"

#include <string.h>

#include "base/json_document.h"
#include "base/json_output.h"

/* ---- reading and writing ---- */

static JsonDocument *
parse(const char *text, char *const *assignments)
{
  g_autoptr(JsonDocument) document = json_document_parse("plan", text, strlen(text), NULL);
  for (; document != NULL && assignments != NULL && *assignments != NULL; assignments++)
    if (!json_document_set(document, *assignments, NULL))
      return NULL;
  return g_steal_pointer(&document);
}

static char *
print(JsonDocument *document)
{
  char *text = cJSON_Print(json_document_root(document));
  char *copy = g_strdup(text);
  cJSON_free(text);
  return copy;
}

static void set(JsonDocument *document, const char *format, ...) G_GNUC_PRINTF(2, 3);

static void
set(JsonDocument *document, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *assignment = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  gboolean is_set = json_document_set(document, assignment, NULL);
  g_assert(is_set);
}

/* The object that holds the last part of a dotted key, or NULL; *name: that part. */
static cJSON *
holder_of(cJSON *root, const char *key, const char **name)
{
  cJSON *object = root;
  for (const char *dot; (dot = strchr(key, '.')) != NULL && object != NULL; key = dot + 1) {
    g_autofree char *part = g_strndup(key, (gsize) (dot - key));
    object = cJSON_GetObjectItemCaseSensitive(object, part);
  }
  *name = key;
  return object;
}

static cJSON *
find(cJSON *root, const char *key)
{
  const char *name;
  cJSON *holder = holder_of(root, key, &name);
  return holder != NULL ? cJSON_GetObjectItemCaseSensitive(holder, name) : NULL;
}

static void
drop(cJSON *root, const char *key)
{
  const char *name;
  cJSON *holder = holder_of(root, key, &name);
  if (holder != NULL)
    cJSON_DeleteItemFromObjectCaseSensitive(holder, name);
}

static gboolean
is(const cJSON *item, const char *json)
{
  g_autofree char *text = json_line(item);
  return g_str_equal(text, json);
}

char *
plan_document_value(const char *text, const char *key)
{
  g_autoptr(JsonDocument) document = parse(text, NULL);
  cJSON *item = document != NULL ? find(json_document_root(document), key) : NULL;
  return json_line(item);
}

/* ---- precision ---- */

/* Who keeps fp32 parameters beside those that are computed with: FSDP's policy, autocast, or an
 * engine with master weights of its own. */
typedef enum { BY_POLICY, BY_AUTOCAST, BY_ENGINE } Mixing;

static Mixing
mixing_of(const char *strategy)
{
  if (g_str_has_prefix(strategy, "fsdp"))
    return BY_POLICY;
  return g_str_equal(strategy, "ddp") || g_str_equal(strategy, "none") ? BY_AUTOCAST : BY_ENGINE;
}

static gboolean
is_mixed(const PlanSpec *plan)
{
  if (mixing_of(plan->strategy) == BY_ENGINE)
    return dtype_size(plan->precision.parameters) == 2;
  return dtype_size(plan->precision.compute) == 2 && plan->precision.parameters == DTYPE_FP32;
}

/* FALSE: it cannot be said there. */
static gboolean
translate_precision(JsonDocument *document, const PlanSpec *plan, const char *strategy)
{
  Mixing from = mixing_of(plan->strategy), to = mixing_of(strategy);
  if (from == to)
    return TRUE;
  cJSON_DeleteItemFromObjectCaseSensitive(json_document_root(document), "precision");
  const char *compute = dtype_name(plan->precision.compute);
  if (!is_mixed(plan)) {
    set(document, "precision.parameters=%s", dtype_name(plan->precision.parameters));
    return to != BY_ENGINE || plan->precision.parameters == DTYPE_FP32;
  }
  set(document, "precision.parameters=%s", to == BY_ENGINE ? compute : "fp32");
  if (to != BY_ENGINE)
    set(document, "precision.compute=%s", compute);
  gboolean engine_scales = from == BY_ENGINE && plan->precision.compute == DTYPE_FP16;
  if (to != BY_ENGINE && (plan->precision.grad_scaler || engine_scales))
    set(document, "precision.grad_scaler=%s", "true");
  if (to == BY_POLICY)
    set(document, "precision.reduce=%s",
        from == BY_ENGINE ? "fp32" : dtype_name(plan->precision.reduce));
  if (to == BY_AUTOCAST)
    set(document, "precision.autocast=true");
  return TRUE;
}

/* ---- another strategy ---- */

/* FSDP1 and FSDP2 share a section, and little of what they read in it. */
static void
drop_other_sections(cJSON *root, const char *from, const char *strategy)
{
  const Strategy *own = strategy_find(strategy);
  if (!g_str_equal(from, strategy) && mixing_of(strategy) == BY_POLICY)
    cJSON_DeleteItemFromObjectCaseSensitive(root, "fsdp");
  for (const Strategy *const *s = strategies(); *s != NULL; s++)
    if ((*s)->section != NULL &&
        (own->section == NULL || !g_str_equal((*s)->section->name, own->section->name)))
      cJSON_DeleteItemFromObjectCaseSensitive(root, (*s)->section->name);
}

/* What belongs to a policy: the axis of checkpointing says it.  Where it goes around a block is
 * FSDP's. */
static void
drop_checkpointing(cJSON *root, const char *strategy)
{
  static const char *const keys[] = {"every", "fraction", "blocks"};
  cJSON *section = cJSON_GetObjectItemCaseSensitive(root, "activation_checkpointing");
  for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
    cJSON_DeleteItemFromObjectCaseSensitive(section, keys[i]);
  if (mixing_of(strategy) != BY_POLICY)
    cJSON_DeleteItemFromObjectCaseSensitive(section, "around");
}

char *
plan_document_for(const InputText *text, char *const *assignments, const PlanSpec *plan,
                  const PlanMesh *mesh)
{
  g_autoptr(JsonDocument) document = parse(text->text, assignments);
  g_assert(document != NULL); /* it was read before */
  cJSON *root = json_document_root(document);
  if (!translate_precision(document, plan, mesh->strategy))
    return NULL;
  drop_other_sections(root, plan->strategy, mesh->strategy);
  drop_checkpointing(root, mesh->strategy);
  set(document, "strategy=%s", mesh->strategy);
  set(document, "mesh.shard=%d", mesh->shard);
  set(document, "mesh.replicate=%d", mesh->replicate);
  return print(document);
}

/* ---- for people ---- */

/* Defaults of the keys that all strategies share (plan_spec.c), as JSON. */
static const struct {
  const char *key, *fallback;
} defaults[] = {
    {"mesh.shard", "1"},
    {"mesh.replicate", "1"},
    {"accumulation.steps", "1"},
    {"accumulation.sync_every_step", "true"},
    {"accumulation.all_reduce_every", "1"},
    {"precision.parameters", "\"fp32\""},
    {"precision.autocast", "false"},
    {"precision.grad_scaler", "false"},
    {"trainer.average_tokens", "true"},
    {"trainer.nan_filter", "true"},
    {"activation_checkpointing.policy", "\"none\""},
    {"optimizer.name", "\"adamw\""},
    {"optimizer.implementation", "\"foreach\""},
    {"optimizer.clip_grad_norm", "null"},
    {"optimizer.zero_grad", "\"start\""},
    {"compile", "\"none\""},
};

static void
drop_default(cJSON *root, const char *key, const char *fallback)
{
  const cJSON *item = find(root, key);
  if (item != NULL && is(item, fallback))
    drop(root, key);
}

static void
drop_default_options(cJSON *root)
{
  const cJSON *name = find(root, "strategy");
  const Strategy *strategy = cJSON_IsString(name) ? strategy_find(name->valuestring) : NULL;
  if (strategy == NULL || strategy->section == NULL)
    return;
  for (const OptionInfo *option = strategy->section->options; option->key != NULL; option++) {
    g_autofree char *key = g_strconcat(strategy->section->name, ".", option->key, NULL);
    drop_default(root, key, option->fallback != NULL ? option->fallback : "null");
  }
}

/* Remarks ("_summary") of the plan that this one began with do not hold any more; sections in which
 * nothing is left go. */
static void
drop_remarks(cJSON *root)
{
  cJSON *next;
  for (cJSON *item = root->child; item != NULL; item = next) {
    next = item->next;
    if (item->string[0] == '_' || (cJSON_IsObject(item) && item->child == NULL))
      cJSON_Delete(cJSON_DetachItemViaPointer(root, item));
  }
}

char *
plan_document_short(const char *text, char *const *assignments, const char *summary)
{
  g_autoptr(JsonDocument) document = parse(text, assignments);
  g_assert(document != NULL);
  cJSON *root = json_document_root(document);
  for (guint i = 0; i < G_N_ELEMENTS(defaults); i++)
    drop_default(root, defaults[i].key, defaults[i].fallback);
  drop_default_options(root);
  drop_remarks(root);
  cJSON *plan = cJSON_CreateObject();
  cJSON_AddStringToObject(plan, "_summary", summary);
  while (root->child != NULL) {
    cJSON *item = cJSON_DetachItemViaPointer(root, root->child);
    g_autofree char *name = g_strdup(item->string);
    cJSON_AddItemToObject(plan, name, item);
  }
  char *printed = cJSON_Print(plan);
  char *copy = g_strdup(printed);
  cJSON_free(printed);
  cJSON_Delete(plan);
  return copy;
}
