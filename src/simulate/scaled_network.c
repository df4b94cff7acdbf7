/* scaled_network.c - shrinks the sizes of a config.json, each under whatever name its family has
 * for it. */
#include "simulate/scaled_network.h"

#include <string.h>

#include "base/json_document.h"
#include "base/json_output.h"
#include "base/units.h"

/* Least sizes: what a person would write by hand for a first try. */
enum {
  LEAST_LAYERS = 2,
  LEAST_HEAD_DIM = 8,
  LEAST_WIDTH = 16,
  LEAST_VOCABULARY = 32,
  LEAST_LENGTH = 8
};

/* The names of a size; NULL-terminated. */
typedef const char *const Names[4];

static Names layer_names = {"num_hidden_layers", "n_layer", "n_layers", NULL};
static Names width_names = {"hidden_size", "n_embd", "d_model", NULL};
static Names inner_names = {"intermediate_size", "n_inner", NULL};
static Names head_names = {"num_attention_heads", "n_head", "n_heads", NULL};
static Names vocabulary_names = {"vocab_size", NULL};
static Names position_names = {"n_positions", NULL}; /* those that have a table */
static Names rotary_names = {"rotary_dim", NULL};    /* of a head: the part that is rotated */
static Names rotary_part_names = {"partial_rotary_factor", "rotary_pct", NULL};
static Names window_names = {"sliding_window", "window_size", NULL};
static Names key_head_names = {"num_key_value_heads", NULL};
static Names head_dim_names = {"head_dim", NULL};

static cJSON *
find(cJSON *root, Names names)
{
  for (int i = 0; names[i] != NULL; i++) {
    cJSON *item = cJSON_GetObjectItemCaseSensitive(root, names[i]);
    if (cJSON_IsNumber(item))
      return item;
  }
  return NULL;
}

/* 0: it is not there. */
static gint64
size_of(cJSON *root, Names names)
{
  const cJSON *item = find(root, names);
  return item != NULL ? (gint64) item->valuedouble : 0;
}

static void
set(cJSON *root, Names names, gint64 value, GString *changes)
{
  cJSON *item = find(root, names);
  if (item == NULL || (gint64) item->valuedouble <= value)
    return;
  g_string_append_printf(changes, "%s%s %.0f -> %" G_GINT64_FORMAT, changes->len > 0 ? ", " : "",
                         item->string, item->valuedouble, value);
  cJSON_SetNumberValue(item, (double) value);
}

static gint64
shrunk(gint64 size, int scale, gint64 least)
{
  return MIN(size, MAX(size / scale, least));
}

gint64
scaled_length(gint64 length, int scale)
{
  return shrunk(length, scale * 8, LEAST_LENGTH);
}

/* A head of which the part that is rotated has pairs. */
static gint64
shrunk_head(cJSON *root, gint64 head, int scale)
{
  const cJSON *part = find(root, rotary_part_names);
  gint64 narrow = shrunk(head, scale, LEAST_HEAD_DIM);
  while (part != NULL && narrow < head && (gint64) ((double) narrow * part->valuedouble) % 2 != 0)
    narrow++;
  return narrow;
}

/* Width follows heads and their width; what is wider or narrower keeps its ratio. */
static void
scale_sizes(cJSON *root, const NetworkScale *by, GString *changes)
{
  int scale = by->divisor;
  gint64 width = size_of(root, width_names), heads = MAX(size_of(root, head_names), 1);
  gint64 key_heads = size_of(root, key_head_names), head_dim = size_of(root, head_dim_names);
  gint64 groups = key_heads > 0 ? MAX(heads / key_heads, 1) : 1;
  gint64 shared = shrunk(key_heads > 0 ? key_heads : heads, scale, key_heads > 0 ? 1 : 2);
  gint64 head = head_dim > 0 ? head_dim : width / heads, narrow = shrunk_head(root, head, scale);
  gint64 now = shared * groups * (head_dim > 0 || width % heads == 0 ? narrow : 0);
  if (head_dim > 0 && width != heads * head_dim)
    now = shrunk(width, scale, LEAST_WIDTH);
  gint64 inner = size_of(root, inner_names);
  gint64 layers = shrunk(size_of(root, layer_names), scale, LEAST_LAYERS);
  set(root, layer_names, by->layers > 0 ? by->layers : layers, changes);
  set(root, head_names, shared * groups, changes);
  set(root, key_head_names, shared, changes);
  set(root, head_dim_names, narrow, changes);
  set(root, rotary_names, MAX(size_of(root, rotary_names) * narrow / MAX(head, 1) / 2 * 2, 2),
      changes);
  set(root, width_names, now, changes);
  set(root, inner_names, MAX(inner * now / MAX(width, 1), LEAST_WIDTH), changes);
  set(root, position_names, scaled_length(size_of(root, position_names), scale), changes);
  set(root, window_names, scaled_length(size_of(root, window_names), scale), changes);
  set(root, vocabulary_names, shrunk(size_of(root, vocabulary_names), scale * 16, LEAST_VOCABULARY),
      changes);
}

char *
scaled_network(const InputText *network, const NetworkScale *scale, GString *changes,
               GError **error)
{
  g_autoptr(JsonDocument) document =
      json_document_parse(network->name, network->text, network->length, error);
  if (document == NULL)
    return NULL;
  cJSON *root = json_document_root(document);
  if (size_of(root, layer_names) == 0 || size_of(root, width_names) == 0) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: --scale: it names no layers and no width to shrink", network->name);
    return NULL;
  }
  scale_sizes(root, scale, changes);
  return json_line(root);
}
