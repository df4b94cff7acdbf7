/* transformers_rope.c - rotary embeddings as transformers' models write them. */
#include "network/transformers_rope.h"

#include "network/op_recipe.h"

/* ---- config.json ---- */

static const char *const rope_fields[] = {"rope_parameters", "rope_scaling"};

/* Kinds of frequencies (ROPE_INIT_FUNCTIONS of modeling_rope_utils.py). */
static const struct {
  const char *name;
  guint update;
} rope_types[] = {
    {"default", FREQUENCIES_FIXED},   {"linear", FREQUENCIES_FIXED},
    {"llama3", FREQUENCIES_FIXED},    {"yarn", FREQUENCIES_FIXED},
    {"dynamic", FREQUENCIES_DYNAMIC}, {"longrope", FREQUENCIES_LONG},
    {"su", FREQUENCIES_LONG},
};

static void
read_rope_type(CausalLm *lm, JsonReader *section)
{
  const char *field = json_reader_has(section, "rope_type") ? "rope_type" : "type";
  const char *type = json_reader_string(section, field, "default");
  for (gsize i = 0; i < G_N_ELEMENTS(rope_types); i++)
    if (g_str_equal(rope_types[i].name, type)) {
      lm->rotary.update = MAX(lm->rotary.update, rope_types[i].update);
      return;
    }
  json_reader_fail(section, field,
                   "'%.60s' is not one of default, linear, llama3, yarn, dynamic, longrope, su",
                   type);
}

/* The parameters, or those of each kind of layer. */
static void
read_rope_types(CausalLm *lm, JsonReader *section)
{
  static const char *const kinds[] = {"full_attention", "sliding_attention"};
  for (gsize i = 0; i < G_N_ELEMENTS(kinds); i++)
    if (json_reader_has(section, kinds[i])) {
      g_autoptr(JsonReader) inner = json_reader_section(section, kinds[i]);
      json_reader_allow_unknown(inner);
      read_rope_type(lm, inner);
      json_reader_finish(inner, NULL);
    }
  read_rope_type(lm, section);
}

void
transformers_rope_read(CausalLm *lm, NetworkSpec *spec, double part)
{
  static const char factor[] = "partial_rotary_factor";
  gboolean partial = part > 0;
  if (partial)
    part = network_spec_double(spec, factor, part);
  else if (network_spec_double(spec, factor, 1) != 1)
    network_spec_fail(spec, factor, "the rotation of a part of a head is not known of %s",
                      spec->family);
  for (gsize i = 0; i < G_N_ELEMENTS(rope_fields); i++) {
    if (!json_reader_has(spec->reader, rope_fields[i]))
      continue;
    g_autoptr(JsonReader) section = json_reader_section(spec->reader, rope_fields[i]);
    json_reader_allow_unknown(section);
    read_rope_types(lm, section);
    if (partial)
      part = json_reader_double(section, factor, part, 0, 1);
    json_reader_finish(section, NULL);
  }
  if (partial && !(part > 0 && part <= 1))
    network_spec_fail(spec, factor, "%.17g is not in 0..1", part);
  else if (partial)
    lm->rotary.dim = (gint64) ((double) lm->head_dim * part);
  if (lm->rotary.dim % 2 != 0 || (partial && lm->rotary.dim == 0))
    network_spec_fail(spec, factor,
                      "%g of a head of %" G_GINT64_FORMAT
                      " is no even number of elements: rotary embeddings need pairs",
                      part, lm->head_dim);
}

/* ---- tables ---- */

static gboolean
has_kind(const CausalLm *lm, gboolean windowed)
{
  for (int i = 0; i < lm->layers; i++)
    if (!!(lm->layer_kinds[i] & LAYER_WINDOWED) == windowed)
      return TRUE;
  return FALSE;
}

void
transformers_define_rotary(Builder *b, CausalLm *lm)
{
  static const char *const plain[] = {""}, *const kinds[] = {"full_attention_",
                                                             "sliding_attention_"};
  const char *const *prefixes = lm->rotary.by_kind ? kinds : plain;
  lm->rotary_module = builder_module(b, "rotary_emb", "RotaryEmbedding");
  for (int i = 0; i < (lm->rotary.by_kind ? 2 : 1); i++) {
    if (lm->rotary.by_kind && !has_kind(lm, i == 1))
      continue;
    g_autofree char *now = g_strdup_printf("model.rotary_emb.%sinv_freq", prefixes[i]);
    g_autofree char *original =
        g_strdup_printf("model.rotary_emb.%soriginal_inv_freq", prefixes[i]);
    builder_buffer(b, now, DTYPE_FP32, causal_lm_rotary_dim(lm) / 2);
    builder_buffer(b, original, DTYPE_FP32, causal_lm_rotary_dim(lm) / 2);
  }
  if (lm->rotary.update == FREQUENCIES_LONG) /* an attribute that the first forward() makes */
    builder_attribute(b, "model.rotary_emb.long_inv_freq", DTYPE_FP32,
                      causal_lm_rotary_dim(lm) / 2);
  builder_module_end(b);
}

/* dynamic_rope_update: are there positions beyond those that the frequencies were made for? */
static void
update_frequencies(Builder *b, const CausalLm *lm)
{
  ValueInfo number = value_shape(DTYPE_INT64, 0), answer = value_shape(DTYPE_BOOL, 0);
  if (lm->rotary.update == FREQUENCIES_FIXED)
    return;
  Val largest = create(b, "largest position", number);
  Val length = create(b, "positions seen", number);
  builder_discard(b, largest);
  Val longer = create(b, "longer", answer), chosen = NO_VAL;
  if (lm->rotary.update == FREQUENCIES_LONG)
    chosen = create(b, "frequencies", value_shape(DTYPE_FP32, 1, causal_lm_rotary_dim(lm) / 2));
  builder_discard(b, longer);
  if (lm->rotary.update == FREQUENCIES_DYNAMIC)
    builder_discard(b, create(b, "shorter", answer));
  builder_discard(b, length);
  if (lm->rotary.update == FREQUENCIES_LONG)
    builder_discard(b, chosen);
}

/* position_ids.float() and inv_freq.float(): the frequencies are fp32 unless FSDP has cast buffers.
 */
static void
make_angles(Builder *b, const CausalLm *lm, ValueInfo angles)
{
  Val positions = create(b, "positions", value_shape(DTYPE_FP32, 1, lm->length)), wide = NO_VAL;
  if (builder_shape(b)->casts_buffers)
    wide = create(b, "frequencies", value_shape(DTYPE_FP32, 1, causal_lm_rotary_dim(lm) / 2));
  let(b, "freqs", create(b, "angles", angles));
  builder_discard(b, positions);
  if (wide.slot != NO_VAL.slot)
    builder_discard(b, wide);
}

/* Cosines (0) or sines of the angles, each pair's twice unless the table is halved: side by side
 * where neighbours make a pair. */
static Val
rotary_table(Builder *b, const CausalLm *lm, int i, ValueInfo info)
{
  static const char *const formulas[3][2] = {{"rotary_cos", "rotary_sin"},
                                             {"rotary_cos_once", "rotary_sin_once"},
                                             {"rotary_cos_neighbours", "rotary_sin_neighbours"}};
  int kind = lm->rotary.halved ? 1 : lm->rotary.neighbours ? 2 : 0;
  const Creation table = {formulas[kind][i], "theta", ROTARY_THETA};
  return create_as(b, i == 0 ? "cos" : "sin", info, &table, NO_VAL);
}

/* The rotary module's forward(): fp32 tables of this batch's positions, returned in the model's
 * dtype unless they stay wide. */
static void
rotary_forward(Builder *b, const CausalLm *lm, Val out[2])
{
  gint64 s = lm->length, d = causal_lm_rotary_dim(lm);
  ValueInfo wide = value_shape(DTYPE_FP32, 3, (gint64) 1, s, lm->rotary.halved ? d / 2 : d);
  builder_module_call(b, lm->rotary_module, 0, NULL); /* of hidden states only the dtype counts */
  update_frequencies(b, lm);
  make_angles(b, lm, value_shape(DTYPE_FP32, 3, (gint64) 1, s, d / 2));
  if (!lm->rotary.halved)
    let(b, "emb", create(b, "angles", wide));
  static const char *const names[] = {"cos", "sin"};
  for (int i = 0; i < 2; i++) {
    Val plain = create(b, names[i], wide);
    out[i] = let(b, names[i], rotary_table(b, lm, i, wide)); /* times attention_scaling */
    builder_discard(b, plain);
  }
  for (int i = 0; i < 2 && !lm->rotary.wide; i++)
    out[i] = to(b, out[i], lm->dtype);
  builder_leave_with(b, 2, out);
}

/* The same as complex numbers, in one table: polar(ones, angles) times attention_scaling. */
static Val
complex_forward(Builder *b, const CausalLm *lm)
{
  gint64 s = lm->length, half = causal_lm_rotary_dim(lm) / 2;
  ValueInfo angles = value_shape(DTYPE_FP32, 3, (gint64) 1, s, half);
  ValueInfo table = value_shape(DTYPE_COMPLEX64, 3, (gint64) 1, s, half);
  builder_module_call(b, lm->rotary_module, 0, NULL);
  make_angles(b, lm, angles);
  Val ones = create(b, "ones", angles);
  let(b, "freqs_cis", create(b, "freqs_cis", table));
  builder_discard(b, ones);
  const Creation polar = {"rotary_complex", "theta", ROTARY_THETA};
  return builder_leave(b, let(b, "freqs_cis", create_as(b, "freqs_cis", table, &polar, NO_VAL)));
}

void
transformers_rotary_tables(Builder *b, const CausalLm *lm, Val tables[4])
{
  static const char *const names[] = {"cos", "sin", "cos of windows", "sin of windows"};
  if (lm->rotary.complex) {
    tables[0] = let(b, "position_embeddings", complex_forward(b, lm));
    return;
  }
  for (int kind = 0; kind < (lm->rotary.by_kind ? 2 : 1); kind++) {
    if (lm->rotary.by_kind && !has_kind(lm, kind == 1))
      continue;
    rotary_forward(b, lm, tables + 2 * kind);
    for (int i = 2 * kind; i < 2 * kind + 2; i++)
      tables[i] = let(b, names[i], tables[i]);
  }
}

const Val *
transformers_choose_table(const CausalLm *lm, int block, const Val tables[4])
{
  gboolean other = lm->rotary.by_kind && lm->layer_kinds[block] & LAYER_WINDOWED;
  return tables + (other ? 2 : 0);
}

/* ---- apply_rotary_pos_emb ---- */

static const char *const embedded[] = {"q_embed", "k_embed"};

/* A table that hooks have cast already to x's dtype, where they do that. */
static Val
received(Builder *b, const char *name, Val table, DType dtype)
{
  ValueInfo info = builder_info(b, table);
  if (!builder_shape(b)->casts_inputs || info.dtype == dtype)
    return table;
  info.dtype = (guint8) dtype;
  return let(b, name, shaped(b, OP_TO_IF_NEEDED, builder_share(b, table), info));
}

static void
rotate_halves(Builder *b, Val qk[2], Val cos, Val sin, gboolean wide)
{
  DType dtype = (DType) builder_info(b, qk[0]).dtype;
  builder_call(b, 0, NULL);
  cos = received(b, "cos", cos, dtype);
  sin = received(b, "sin", sin, dtype);
  for (int i = 0; i < 2; i++)
    qk[i] = let(b, embedded[i], rope_rotated(b, qk[i], cos, sin, rotate_half));
  for (int i = 0; i < 2 && wide; i++)
    qk[i] = to(b, qk[i], dtype);
  builder_leave_with(b, 2, qk);
}

/* torch.stack([-x2, x1], dim=-1).flatten(-2) of neighbours x1, x2. */
Val
transformers_rotate_neighbours(Builder *b, Val x)
{
  ValueInfo info = builder_info(b, x);
  builder_enter(b, 1, (const char *const[]){"x"}, &x);
  x = (Val){x.slot, FALSE};
  Val first = let(b, "x1", every_second(b, x, 0));
  Val second = let(b, "x2", every_second(b, x, 1));
  Val negated = unary(b, OP_NEG, second);
  OpAttributes at = {.result = info};
  at.result.shape[at.result.dims - 1] /= 2;
  at.result.shape[at.result.dims++] = 2;
  value_set_contiguous(&at.result);
  Val stacked = builder_op(b, OP_STACK, &at, 2, (Val[]){negated, first});
  return builder_leave(b, let(b, "rot_x", reshape(b, stacked, info)));
}

static void
rotate_interleaved(Builder *b, Val qk[2], Val cos, Val sin)
{
  static const char *const names[] = {"q", "k"};
  DType dtype = (DType) builder_info(b, qk[0]).dtype;
  builder_call(b, 0, NULL);
  for (int i = 0; i < 2; i++)
    qk[i] = let(b, names[i], to(b, qk[i], DTYPE_FP32));
  for (int i = 0; i < 2; i++)
    qk[i] = let(b, embedded[i], rope_rotated(b, qk[i], cos, sin, transformers_rotate_neighbours));
  for (int i = 0; i < 2; i++)
    qk[i] = to(b, qk[i], dtype);
  builder_leave_with(b, 2, qk);
}

/* a * cos - b * sin, or a * cos + b * sin. */
static Val
turned(Builder *b, OpId op, const Val pair[2], Val cos, Val sin)
{
  Val first = binary(b, OP_MUL, pair[0], cos);
  Val second = binary(b, OP_MUL, pair[1], sin);
  return binary(b, op, first, second);
}

/* apply_rotary_pos_emb_interleave: torch.cat([x1 cos - x2 sin, x2 cos + x1 sin], -1) */
static void
rotate_neighbours_apart(Builder *b, Val qk[2], Val cos, Val sin)
{
  static const char *const halves[2][2] = {{"q1", "q2"}, {"k1", "k2"}};
  ValueInfo table = builder_info(b, cos);
  gint64 pairs = table.shape[table.dims - 1] / 2;
  Val x[2][2];
  builder_call(b, 0, NULL);
  cos = let(b, "cos", slice_last(b, cos, 0, pairs));
  sin = let(b, "sin", slice_last(b, sin, 0, pairs));
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < 2; k++)
      x[i][k] = let(b, halves[i][k], every_second(b, qk[i], k));
  for (int i = 0; i < 2; i++) {
    Val even = turned(b, OP_SUB, x[i], cos, sin);
    Val odd = turned(b, OP_ADD, (Val[]){x[i][1], x[i][0]}, cos, sin);
    qk[i] = let(b, embedded[i], join_last(b, even, odd));
  }
  builder_leave_with(b, 2, qk);
}

/* _apply_rotary_emb: the same of halves, in a function of its own. */
static Val
rotated_chunks(Builder *b, Val x, Val cos, Val sin)
{
  static const char *const names[] = {"first_half", "second_half"};
  Val half[2];
  builder_enter(b, 1, (const char *const[]){"x"}, &x);
  x = (Val){x.slot, FALSE};
  chunk(b, x, 2, half);
  for (int i = 0; i < 2; i++)
    half[i] = let(b, names[i], half[i]);
  Val first = let(b, "first_", turned(b, OP_SUB, half, cos, sin));
  Val second = let(b, "second_", turned(b, OP_ADD, (Val[]){half[1], half[0]}, cos, sin));
  return builder_leave(b, join_last(b, first, second));
}

static void
rotate_chunks(Builder *b, Val qk[2], Val cos, Val sin)
{
  builder_call(b, 0, NULL);
  for (int i = 0; i < 2; i++)
    qk[i] = let(b, embedded[i], rotated_chunks(b, qk[i], cos, sin));
  builder_leave_with(b, 2, qk);
}

/* x[..., :dim], x[..., dim:] as names. */
void
transformers_part_heads(Builder *b, Val x, gint64 dim, const char *const names[2], Val out[2])
{
  ValueInfo info = builder_info(b, x);
  gboolean whole = dim == info.shape[info.dims - 1]; /* indexing then gives x itself */
  out[0] = whole ? builder_share(b, x) : slice_last(b, x, 0, dim);
  out[1] = slice_last(b, x, dim, info.shape[info.dims - 1] - dim);
  let_pair(b, names, out);
}

static const char *const parts[2][2] = {{"q_rot", "q_pass"}, {"k_rot", "k_pass"}};

/* cos[..., : dim / 2].repeat_interleave(2, dim=-1) */
static Val
interleaved(Builder *b, const char *name, Val table)
{
  ValueInfo info = builder_info(b, table);
  value_set_contiguous(&info);
  static const Creation twice = {"repeat_interleave", NULL, 0};
  return let(b, name, create_as(b, name, info, &twice, table));
}

/* Queries are put together before keys are rotated, or after that. */
static void
rotate_part(Builder *b, RotaryKind kind, Val qk[2], Val cos, Val sin)
{
  ValueInfo table = builder_info(b, cos);
  gint64 dim = table.shape[table.dims - 1];
  gboolean neighbours = kind == ROTATE_PART_NEIGHBOURS, later = kind != ROTATE_PART;
  Val pieces[2][2];
  builder_call(b, 0, NULL);
  if (neighbours) {
    cos = interleaved(b, "cos", cos);
    sin = interleaved(b, "sin", sin);
  }
  for (int i = 0; i < 2; i++)
    transformers_part_heads(b, qk[i], dim, parts[i], pieces[i]);
  for (int i = 0; i < 2; i++) {
    Val turned = rope_rotated(b, pieces[i][0], cos, sin,
                              neighbours ? transformers_rotate_neighbours : rotate_half);
    if (!later)
      turned = join_last(b, turned, pieces[i][1]);
    qk[i] = let(b, embedded[i], turned);
  }
  for (int i = 0; i < 2 && later; i++)
    qk[i] = let(b, embedded[i], join_last(b, qk[i], pieces[i][1]));
  builder_leave_with(b, 2, qk);
}

static void
rotate_part_outside(Builder *b, Val qk[2], Val cos, Val sin)
{
  ValueInfo table = builder_info(b, cos);
  gint64 dim = table.shape[table.dims - 1];
  static const char *const names[] = {"q_rot", "k_rot"};
  Val pieces[2][2], turned[2];
  for (int i = 0; i < 2; i++)
    transformers_part_heads(b, qk[i], dim, parts[i], pieces[i]);
  for (int i = 0; i < 2; i++)
    turned[i] = pieces[i][0];
  rotate_halves(b, turned, cos, sin, FALSE);
  let_pair(b, names, turned);
  for (int i = 0; i < 2; i++)
    qk[i] = join_last(b, turned[i], pieces[i][1]);
}

void
transformers_rotate(Builder *b, RotaryKind kind, Val qk[2], Val cos, Val sin)
{
  switch (kind) {
  case ROTATE_INTERLEAVED_WIDE:
    rotate_interleaved(b, qk, cos, sin);
    return;
  case ROTATE_PART:
  case ROTATE_PART_LATER:
  case ROTATE_PART_NEIGHBOURS:
    rotate_part(b, kind, qk, cos, sin);
    return;
  case ROTATE_PART_OUTSIDE:
    rotate_part_outside(b, qk, cos, sin);
    return;
  case ROTATE_NEIGHBOURS:
    rotate_neighbours_apart(b, qk, cos, sin);
    return;
  case ROTATE_CHUNKS:
    rotate_chunks(b, qk, cos, sin);
    return;
  default:
    rotate_halves(b, qk, cos, sin, kind == ROTATE_HALF_WIDE);
  }
}
