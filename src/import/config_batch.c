/* config_batch.c - brings together what a configuration says about batches and ranks. */
#include "import/config_batch.h"

#include <string.h>

#include "spec/plan_spec.h"

#define BATCH_MOST G_MAXINT32
#define STEPS_MOST 1024

static int
read_size(ConfigReader *r, const char *key, int fallback, int most)
{
  return key != NULL ? config_int(r, key, fallback, 1, most) : fallback;
}

int
config_ranks(ConfigReader *r, const char *key, int ranks)
{
  int wanted = r->result->settings->ranks;
  if (ranks > 0 && wanted > 0 && ranks != wanted)
    config_fail(r, key, "%d ranks, but --ranks says %d", ranks, wanted);
  return ranks > 0 ? ranks : wanted;
}

int
config_ranks_or_usual(int ranks)
{
  return ranks > 0 ? ranks : CONFIG_RANKS_USUAL;
}

void
config_default_autocast(ConfigReader *r)
{
  config_default(r, "precision.parameters", cJSON_CreateString("fp32"),
                 "autocast leaves parameters as the script loads them");
  config_default(r, "precision.autocast", cJSON_CreateTrue(),
                 "accelerate wraps the model's forward() in autocast");
  config_default(r, "precision.output", cJSON_CreateString("fp32"),
                 "and its wrapper returns outputs in fp32");
}

void
config_default_scaler(ConfigReader *r, const char *dtype)
{
  const cJSON *fsdp = cJSON_GetObjectItem(r->result->plan, "fsdp");
  gboolean offloads = cJSON_IsTrue(cJSON_GetObjectItem(fsdp, "cpu_offload"));
  if (g_strcmp0(dtype, "fp16") == 0)
    config_default(r, "precision.grad_scaler", cJSON_CreateBool(!offloads),
                   offloads ? "NOT SIMULATED: the gradient scaler of gradients on the host"
                            : "accelerate scales losses in fp16");
}

void
config_default_loop(ConfigReader *r)
{
  config_default(
      r, "loop", cJSON_CreateString("accelerate"),
      "accelerator.backward() divides a copy of each loss, by 1 too, unless DeepSpeed does");
}

void
config_default_ddp(ConfigReader *r)
{
  if (!config_is_set(r, "ddp.bucket_cap_mb"))
    config_default(r, "ddp.first_bucket_mb", cJSON_CreateNumber(1),
                   "DDP's own where nobody gives it bucket_cap_mb");
}

/* total = micro * steps * ranks */
static gboolean
is_consistent(const ConfigBatch *b, int ranks)
{
  gint64 known = (gint64) MAX(b->micro, 1) * MAX(b->steps, 1) * ranks;
  if (b->total == 0)
    return TRUE;
  return b->micro > 0 && b->steps > 0 ? known == b->total : b->total % known == 0;
}

static void
find_ranks(ConfigBatch *b)
{
  gint64 of_a_rank = (gint64) b->micro * b->steps;
  if (b->ranks > 0)
    return;
  if (b->total > 0 && of_a_rank > 0) {
    b->ranks = (int) (b->total / of_a_rank);
    return;
  }
  for (b->ranks = CONFIG_RANKS_USUAL; b->ranks > 1 && !is_consistent(b, b->ranks);)
    b->ranks /= 2;
}

static void
fail_sizes(ConfigReader *r, const ConfigBatch *b)
{
  g_autoptr(GString) factors = g_string_new(NULL);
  if (b->micro > 0)
    g_string_append_printf(factors, "%d (%s) x ", b->micro, b->micro_key);
  if (b->steps > 0)
    g_string_append_printf(factors, "%d (%s) x ", b->steps,
                           b->steps_key != NULL ? b->steps_key : "steps");
  if (b->micro > 0 && b->steps > 0)
    config_fail(r, b->total_key, "contradicts the others: %d is not %s%d ranks = %" G_GINT64_FORMAT,
                b->total, factors->str, b->ranks, (gint64) b->micro * b->steps * b->ranks);
  else
    config_fail(r, b->total_key, "contradicts the others: %d is no multiple of %s%d ranks",
                b->total, factors->str, b->ranks);
}

/* As DeepSpeed does: what is left of the total after the other factors. */
static void
find_missing(ConfigBatch *b)
{
  if (b->total > 0 && b->micro > 0 && b->steps == 0)
    b->steps = (int) (b->total / ((gint64) b->micro * b->ranks));
  else if (b->total > 0 && b->micro == 0)
    b->micro = (int) (b->total / ((gint64) MAX(b->steps, 1) * b->ranks));
}

static void
tell(ConfigReader *r, const char *key, const char *ours, int value, int fallback, gboolean derived,
     const char *reason)
{
  gboolean given = key != NULL && config_has(r, key);
  if (given && value > 0)
    config_use(r, key, ours, cJSON_CreateNumber(value), config_is_auto(r, key) ? "auto: %s" : NULL,
               reason);
  else if (value > 0 && derived)
    config_default(r, ours, cJSON_CreateNumber(value), "what the other sizes of batches leave");
  else if (value > 0)
    config_default(r, ours, cJSON_CreateNumber(value), reason);
  else
    config_default(r, ours, cJSON_CreateNumber(fallback), reason);
  if (given && value == 0)
    config_note(r, CONFIG_IGNORED, key, "auto: %s", reason);
}

void
config_batch_resolve(ConfigReader *r, ConfigBatch *b)
{
  b->total = read_size(r, b->total_key, b->total, BATCH_MOST);
  b->micro = read_size(r, b->micro_key, b->micro, PLAN_MICRO_BATCH_MOST);
  b->steps = read_size(r, b->steps_key, b->steps, STEPS_MOST);
  if (config_failed(r))
    return;
  find_ranks(b);
  if (!is_consistent(b, MAX(b->ranks, 1))) {
    b->ranks = MAX(b->ranks, 1);
    fail_sizes(r, b);
    return;
  }
  gboolean derived = b->total > 0;
  find_missing(b);
  if (b->steps > STEPS_MOST)
    config_fail(r, b->total_key, "%d micro-batches in a step, more than %d", b->steps, STEPS_MOST);
  tell(r, b->micro_key, "batch.micro_batch", b->micro, MAX(b->micro_default, 1), derived,
       b->micro_reason);
  tell(r, b->steps_key, "accumulation.steps", b->steps, 1, derived && b->steps > 1,
       b->steps_reason);
  if (b->total_key != NULL && config_has(r, b->total_key) && config_is_auto(r, b->total_key))
    config_note(r, CONFIG_IGNORED, b->total_key, "auto: follows from the others");
  else if (b->total_key != NULL && b->total > 0)
    config_note(r, CONFIG_USED, b->total_key, "%d micro-batches of %d on %d ranks",
                MAX(b->steps, 1), MAX(b->micro, 1), b->ranks);
}
