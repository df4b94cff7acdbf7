/* checkpoint_spec.c - which blocks recompute their activations, and how. */
#include "spec/checkpoint_spec.h"

#include <math.h>
#include <string.h>

#define EVERY_MAX (1 << 20)
#define EVERY_DEFAULT 2 /* torchtitan's "selective" of every other block */

static const char *const policy_names[] = {"none",     "full",         "every_n",
                                           "fraction", "selective_op", NULL};
static const char *const keep_names[] = {"alternate_mm", "matmul", "attention", NULL};
static const char *const around_names[] = {"module", "fsdp", NULL};

/* ---- blocks with a policy of their own ---- */

/* "7" or "0-7". */
static gboolean
parse_blocks(const char *text, BlockCheckpoints *blocks)
{
  const char *dash = strchr(text, '-');
  g_autofree char *first = dash != NULL ? g_strndup(text, (gsize) (dash - text)) : g_strdup(text);
  guint64 from, to;
  if (!g_ascii_string_to_unsigned(first, 10, 0, EVERY_MAX, &from, NULL) ||
      !g_ascii_string_to_unsigned(dash != NULL ? dash + 1 : first, 10, from, EVERY_MAX, &to, NULL))
    return FALSE;
  blocks->first = (int) from;
  blocks->last = (int) to;
  return TRUE;
}

static gboolean
parse_policy(const cJSON *value, BlockCheckpoints *blocks)
{
  static const CheckpointPolicy allowed[] = {CHECKPOINT_NONE, CHECKPOINT_FULL,
                                             CHECKPOINT_SELECTIVE_OP};
  for (guint i = 0; cJSON_IsString(value) && i < G_N_ELEMENTS(allowed); i++)
    if (g_str_equal(value->valuestring, policy_names[allowed[i]])) {
      blocks->policy = allowed[i];
      return TRUE;
    }
  return FALSE;
}

static int
by_first(gconstpointer a, gconstpointer b)
{
  const BlockCheckpoints *x = a, *y = b;
  return (x->first > y->first) - (x->first < y->first);
}

static void
refuse_overlaps(JsonReader *section, const GArray *list)
{
  for (guint i = 1; i < list->len; i++) {
    const BlockCheckpoints *a = &g_array_index(list, BlockCheckpoints, i - 1);
    const BlockCheckpoints *b = &g_array_index(list, BlockCheckpoints, i);
    if (b->first <= a->last)
      json_reader_fail(section, "blocks", "block %d has more than one policy", b->first);
  }
}

static GArray *
read_blocks(JsonReader *section)
{
  const cJSON *object = json_reader_raw(section, "blocks"), *item;
  if (object == NULL || cJSON_IsNull(object))
    return NULL;
  GArray *list = g_array_new(FALSE, FALSE, sizeof(BlockCheckpoints));
  if (!cJSON_IsObject(object))
    json_reader_fail(section, "blocks", "an object is needed, as {\"0-7\": \"none\"}");
  cJSON_ArrayForEach(item, object)
  {
    BlockCheckpoints blocks;
    if (!cJSON_IsObject(object))
      break;
    if (!parse_blocks(item->string, &blocks))
      json_reader_fail(section, "blocks",
                       "'%.60s' is no block or range of blocks, as \"7\", "
                       "\"0-7\"",
                       item->string);
    else if (!parse_policy(item, &blocks))
      json_reader_fail(section, "blocks", "'%.60s': a policy is needed: none, full or selective_op",
                       item->string);
    else
      g_array_append_val(list, blocks);
  }
  g_array_sort(list, by_first);
  refuse_overlaps(section, list);
  return list;
}

/* ---- the section ---- */

/* An option that only one policy has: elsewhere its default may be repeated, nothing else. */
static void
refuse_without_policy(JsonReader *reader, const char *key, gboolean differs, const char *policies)
{
  if (differs)
    json_reader_fail(reader, key, "has a meaning only with policy %s", policies);
}

void
checkpoint_spec_read(JsonReader *reader, CheckpointSpec *spec)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "activation_checkpointing");
  static const char recomputing[] = "full, every_n, fraction or selective_op";
  CheckpointPolicy policy =
      (CheckpointPolicy) json_reader_enum(section, "policy", policy_names, CHECKPOINT_NONE);
  gboolean has_fraction = json_reader_has(section, "fraction");
  spec->policy = policy;
  spec->every = (int) json_reader_int(section, "every", EVERY_DEFAULT, 1, EVERY_MAX);
  spec->fraction = json_reader_double(section, "fraction", 0, 0, 1);
  spec->around =
      (CheckpointAround) json_reader_enum(section, "around", around_names, AROUND_MODULE);
  spec->wrapper = json_reader_bool(section, "wrapper", FALSE);
  spec->early_stop = json_reader_bool(section, "early_stop", TRUE);
  spec->keep = (KeptOps) json_reader_enum(section, "keep", keep_names, KEEP_ALTERNATE_MM);
  spec->blocks = read_blocks(section);
  refuse_without_policy(section, "every",
                        policy != CHECKPOINT_EVERY_N && spec->every != EVERY_DEFAULT, "every_n");
  refuse_without_policy(section, "fraction", policy != CHECKPOINT_FRACTION && has_fraction,
                        "fraction");
  refuse_without_policy(section, "around",
                        !checkpoint_spec_recomputes(spec) && spec->around != AROUND_MODULE,
                        recomputing);
  refuse_without_policy(section, "wrapper", !checkpoint_spec_recomputes(spec) && spec->wrapper,
                        recomputing);
  refuse_without_policy(section, "early_stop",
                        !checkpoint_spec_recomputes(spec) && !spec->early_stop, recomputing);
  refuse_without_policy(section, "keep",
                        !checkpoint_spec_has(spec, CHECKPOINT_SELECTIVE_OP) &&
                            spec->keep != KEEP_ALTERNATE_MM,
                        "selective_op");
  if (policy == CHECKPOINT_FRACTION)
    json_reader_require(section, "fraction");
  json_reader_finish(section, NULL);
}

void
checkpoint_spec_clear(CheckpointSpec *spec)
{
  g_clear_pointer(&spec->blocks, g_array_unref);
}

/* ---- answers ---- */

/* How many of the first n blocks are checkpointed: whenever n times the fraction reaches another
 * whole and a half one is (fms_fsdp/policies/ac_handler.py, apply_fsdp_checkpointing). */
static int
checkpointed_of(double fraction, int n)
{
  double reached = n * fraction;
  int count = (int) floor(reached + 0.5);
  return reached < count - 0.5 ? count - 1 : count; /* the sum was rounded */
}

CheckpointPolicy
checkpoint_spec_of_block(const CheckpointSpec *spec, int block)
{
  for (guint i = 0; spec->blocks != NULL && i < spec->blocks->len; i++) {
    const BlockCheckpoints *own = &g_array_index(spec->blocks, BlockCheckpoints, i);
    if (own->first <= block && block <= own->last)
      return own->policy;
  }
  double f = spec->fraction;
  switch (spec->policy) {
  case CHECKPOINT_EVERY_N:
    return block % spec->every == 0 ? CHECKPOINT_FULL : CHECKPOINT_NONE;
  case CHECKPOINT_FRACTION:
    return checkpointed_of(f, block + 1) > checkpointed_of(f, block) ? CHECKPOINT_FULL
                                                                     : CHECKPOINT_NONE;
  default:
    return spec->policy;
  }
}

gboolean
checkpoint_spec_has(const CheckpointSpec *spec, CheckpointPolicy policy)
{
  gboolean some = spec->policy == CHECKPOINT_EVERY_N || spec->policy == CHECKPOINT_FRACTION;
  if (spec->policy == policy || (some && policy != CHECKPOINT_SELECTIVE_OP))
    return TRUE;
  for (guint i = 0; spec->blocks != NULL && i < spec->blocks->len; i++)
    if (g_array_index(spec->blocks, BlockCheckpoints, i).policy == policy)
      return TRUE;
  return FALSE;
}

gboolean
checkpoint_spec_recomputes(const CheckpointSpec *spec)
{
  return checkpoint_spec_has(spec, CHECKPOINT_FULL) ||
         checkpoint_spec_has(spec, CHECKPOINT_SELECTIVE_OP);
}

const char *
checkpoint_keep_name(KeptOps keep)
{
  return keep_names[keep];
}

const char *
checkpoint_policy_name(CheckpointPolicy policy)
{
  return policy_names[policy];
}

static void
append_policy(const CheckpointSpec *spec, GString *out)
{
  switch (spec->policy) {
  case CHECKPOINT_EVERY_N:
    g_string_append_printf(out, "every %d", spec->every);
    break;
  case CHECKPOINT_FRACTION:
    g_string_append_printf(out, "%.3g of the blocks", spec->fraction);
    break;
  default:
    g_string_append(out, policy_names[spec->policy]);
  }
}

char *
checkpoint_spec_text(const CheckpointSpec *spec)
{
  GString *out = g_string_new(NULL);
  append_policy(spec, out);
  if (spec->keep != KEEP_ALTERNATE_MM)
    g_string_append_printf(out, ", keeping %s", keep_names[spec->keep]);
  for (guint i = 0; spec->blocks != NULL && i < spec->blocks->len; i++) {
    const BlockCheckpoints *own = &g_array_index(spec->blocks, BlockCheckpoints, i);
    g_string_append_printf(out, own->first == own->last ? ", block %d" : ", blocks %d-%d",
                           own->first, own->last);
    g_string_append_printf(out, " %s", policy_names[own->policy]);
  }
  return g_string_free(out, FALSE);
}
