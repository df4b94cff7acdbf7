/* family_smollm3.c - SmolLM3: Llama without rotary embedding in some layers. */
#include "network/transformers_decoder.h"

/* no_rope_layers: 1 for a layer that rotates, 0 for one that does not; else every so many does not.
 */
static void
read_rotated(Decoder *d, NetworkSpec *spec)
{
  const cJSON *list = json_reader_raw(spec->reader, "no_rope_layers");
  gint64 interval = network_spec_int(spec, "no_rope_layer_interval", 4);
  gboolean given = list != NULL && !cJSON_IsNull(list);
  if (given && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < d->lm.layers))
    network_spec_fail(spec, "no_rope_layers", "must be a list of one 0 or 1 for each of %d layers",
                      (int) d->lm.layers);
  for (int i = 0; i < d->lm.layers; i++) {
    const cJSON *item = given ? cJSON_GetArrayItem(list, i) : NULL;
    gboolean rotates = item != NULL ? item->valuedouble != 0 : (i + 1) % interval != 0;
    decoder_mark_layer(d, i, rotates ? 0 : LAYER_UNROTATED);
  }
}

/* Layers without a rotary embedding are those with a window, if there is one. */
static void
read_windows(Decoder *d, NetworkSpec *spec)
{
  gint64 window = network_spec_int(spec, "sliding_window", 0);
  d->lm.mask_kwargs = TRUE;
  if (!network_spec_bool(spec, "use_sliding_window", FALSE) || window == 0)
    return;
  d->lm.window = window;
  for (int i = 0; i < d->lm.layers && !json_reader_has(spec->reader, "layer_types"); i++)
    if (d->lm.layer_kinds[i] & LAYER_UNROTATED)
      decoder_mark_layer(d, i, LAYER_WINDOWED);
  decoder_read_layer_types(d, spec, NULL, 0);
}

static void
read(Decoder *d, NetworkSpec *spec)
{
  read_rotated(d, spec);
  read_windows(d, spec);
}

static const DecoderStyle style = {
    .norm = NORM_RMS,
    .qkv = {QKV_PROJECT, QKV_HEADS, QKV_TRANSPOSE},
    .tied = TRUE,
    .mlp_bias_field = TRUE,
    .attention_bias_field = TRUE,
    .read = read,
};

static Network *
build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  return decoder_build_style(&style, spec, shape, error);
}

const NetworkFamily family_smollm3 = {
    .name = "smollm3",
    .summary = "SmolLM3: Llama without rotary embedding in every fourth layer",
    .model_types = (const char *const[]){"smollm3", NULL},
    .build = build,
};
