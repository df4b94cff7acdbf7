/* plan_values.c - a plan as a flat list of keys with the values that hold, defaults too. */
#include "import/plan_values.h"

#include <string.h>

/* Copied as they are written. */
static const char *const whole_sections[] = {"allocator", "retain", "trainable", "lora",
                                             "phases",    "ranks",  "failure"};

static void
put(cJSON *values, const char *key, cJSON *value)
{
  cJSON_AddItemToObject(values, key, value);
}

static void
put_text(cJSON *values, const char *key, const char *text)
{
  put(values, key, cJSON_CreateString(text));
}

static void
put_batch(cJSON *values, const PlanSpec *s)
{
  put_text(values, "strategy", s->strategy);
  put(values, "mesh.shard", cJSON_CreateNumber(s->shard));
  put(values, "mesh.replicate", cJSON_CreateNumber(s->replicate));
  put(values, "batch.micro_batch", cJSON_CreateNumber(s->micro_batch));
  put(values, "batch.sequence_length", cJSON_CreateNumber(s->sequence_length));
  put(values, "accumulation.steps", cJSON_CreateNumber(s->accumulation.steps));
  if (s->accumulation.steps == 1)
    return;
  put(values, "accumulation.sync_every_step", cJSON_CreateBool(s->accumulation.sync_every_step));
  put(values, "accumulation.reshard_after_backward",
      cJSON_CreateBool(s->accumulation.reshard_after_backward));
  put(values, "accumulation.set_last_backward",
      cJSON_CreateBool(s->accumulation.set_last_backward));
  put(values, "accumulation.all_reduce_every",
      cJSON_CreateNumber(s->accumulation.all_reduce_every));
}

static void
put_precision(cJSON *values, const PlanSpec *s)
{
  put_text(values, "precision.parameters", dtype_name(s->precision.parameters));
  put_text(values, "precision.compute", dtype_name(s->precision.compute));
  put_text(values, "precision.reduce", dtype_name(s->precision.reduce));
  put(values, "precision.grad_scaler", cJSON_CreateBool(s->precision.grad_scaler));
  put(values, "precision.autocast", cJSON_CreateBool(s->precision.autocast));
  if (s->precision.has_output)
    put_text(values, "precision.output", dtype_name(s->precision.output));
  else
    put(values, "precision.output", cJSON_CreateNull());
}

static void
put_checkpointing(cJSON *values, const PlanSpec *s, const cJSON *document)
{
  const CheckpointSpec *c = &s->checkpointing;
  const cJSON *section = cJSON_GetObjectItemCaseSensitive(document, "activation_checkpointing");
  const cJSON *blocks = cJSON_GetObjectItemCaseSensitive(section, "blocks");
  put_text(values, "activation_checkpointing.policy", checkpoint_policy_name(c->policy));
  if (c->policy == CHECKPOINT_EVERY_N)
    put(values, "activation_checkpointing.every", cJSON_CreateNumber(c->every));
  if (c->policy == CHECKPOINT_FRACTION)
    put(values, "activation_checkpointing.fraction", cJSON_CreateNumber(c->fraction));
  if (checkpoint_spec_recomputes(c)) {
    put_text(values, "activation_checkpointing.around",
             c->around == AROUND_FSDP ? "fsdp" : "module");
    put(values, "activation_checkpointing.wrapper", cJSON_CreateBool(c->wrapper));
    put(values, "activation_checkpointing.early_stop", cJSON_CreateBool(c->early_stop));
  }
  if (checkpoint_spec_has(c, CHECKPOINT_SELECTIVE_OP))
    put_text(values, "activation_checkpointing.keep", checkpoint_keep_name(c->keep));
  if (cJSON_IsObject(blocks))
    put(values, "activation_checkpointing.blocks", cJSON_Duplicate(blocks, TRUE));
}

static void
put_optimizer(cJSON *values, const PlanSpec *s)
{
  put_text(values, "optimizer.name", plan_optimizer_name(s->optimizer.name));
  put_text(values, "optimizer.implementation",
           plan_optimizer_code_name(s->optimizer.implementation));
  put(values, "optimizer.clip_grad_norm",
      s->optimizer.clip_grad_norm > 0 ? cJSON_CreateNumber(s->optimizer.clip_grad_norm)
                                      : cJSON_CreateNull());
  put_text(values, "optimizer.zero_grad",
           s->optimizer.zero_grad == ZERO_GRAD_END ? "end" : "start");
  put_text(values, "loop", plan_loop_name(s->loop));
  if (s->loop == LOOP_TRAINER) {
    put(values, "trainer.average_tokens", cJSON_CreateBool(s->trainer.average_tokens));
    put(values, "trainer.nan_filter", cJSON_CreateBool(s->trainer.nan_filter));
  }
  put_text(values, "compile", s->compile_per_block ? "per_block" : "none");
}

/* What the plan's text says under "section.key", or null. */
static cJSON *
written_option(const cJSON *document, const char *section, const char *key)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, section);
  g_auto(GStrv) parts = g_strsplit(key, ".", -1);
  for (char **part = parts; *part != NULL; part++)
    item = cJSON_GetObjectItemCaseSensitive(item, *part);
  return item != NULL ? cJSON_Duplicate(item, TRUE) : cJSON_CreateNull();
}

static cJSON *
option_json(const OptionInfo *option, const OptionValue *value, const PlanSpec *s)
{
  if (value->is_null)
    return cJSON_CreateNull();
  if (value->is_auto)
    return cJSON_CreateString("auto");
  switch (option->type) {
  case OPTION_BOOL:
    return cJSON_CreateBool(value->number != 0);
  case OPTION_BOOL_OR_INT:
    return value->is_bool ? cJSON_CreateBool(value->number != 0)
                          : cJSON_CreateNumber((double) value->number);
  case OPTION_ENUM:
    return cJSON_CreateString(option->names[value->number]);
  case OPTION_NAME_OR_INT:
    /* FSDP1 takes 0, the default, for the first name. */
    return value->is_name || (value->number == 0 && g_str_equal(s->strategy, "fsdp1"))
               ? cJSON_CreateString(option->names[value->number])
               : cJSON_CreateNumber((double) value->number);
  case OPTION_REAL:
    return cJSON_CreateNumber(value->real);
  default:
    return cJSON_CreateNumber((double) value->number);
  }
}

static void
put_options(cJSON *values, const PlanSpec *s, const cJSON *document)
{
  for (guint i = 0; s->section != NULL && s->section->options[i].key != NULL; i++) {
    const OptionInfo *option = &s->section->options[i];
    g_autofree char *key = g_strconcat(s->section->name, ".", option->key, NULL);
    gboolean as_written = option->type == OPTION_TEXT || option->type == OPTION_NAME_LISTS ||
                          option->type == OPTION_ABSENT;
    put(values, key,
        as_written ? written_option(document, s->section->name, option->key)
                   : option_json(option, &s->options[i], s));
  }
}

cJSON *
plan_values(const PlanSpec *spec, const cJSON *document)
{
  cJSON *values = cJSON_CreateObject();
  put_batch(values, spec);
  put_precision(values, spec);
  put_checkpointing(values, spec, document);
  put_optimizer(values, spec);
  put_options(values, spec, document);
  for (guint i = 0; i < G_N_ELEMENTS(whole_sections); i++) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, whole_sections[i]);
    gboolean filled = item != NULL && !cJSON_IsNull(item) &&
                      !((cJSON_IsObject(item) || cJSON_IsArray(item)) && item->child == NULL);
    if (filled)
      put(values, whole_sections[i], cJSON_Duplicate(item, TRUE));
  }
  return values;
}
