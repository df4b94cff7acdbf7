/* check_host_order.c - the order in which the host issues FSDP2's work: every allocation and free
 * of its buffers, every collective, wait and record, of one steady step of a small network.
 *
 * The network is three Linear(64, 64) with bias between an Embedding(128, 64) and a Linear(64, 128)
 * of the root.  What must come is written down here twice over: as the rules of the hooks, which
 * describe the whole step, and (when the reference data is there) as the traces of the real
 * framework.  Temporaries of ops are left out: the reference traces are of CPU kernels. */
#include "host_order.h"
#include "simulation.h"
#include "tap_main.h"
#include <stdio.h>
#include <string.h>

enum { BF16 = 2, FP32 = 4 }; /* bytes of an element */
#define STEADY_STEP 2        /* the third */

static const char network[] =
    "{'family': 'blocks', 'hidden': 64, 'vocabulary': 128, 'list': 'ls', 'loss': 'sum',"
    " 'blocks': [{'repeat': 3, 'ops': [{'op': 'linear', 'bias': true}]}]}";

static const char plan[] =
    "{'strategy': 'fsdp2', 'mesh': {'shard': 8}, 'batch': {'micro_batch': 1, 'sequence_length': 6},"
    " 'precision': {'parameters': 'fp32', 'compute': 'bf16', 'reduce': 'fp32'},"
    " 'optimizer': {'name': 'none', 'clip_grad_norm': null, 'zero_grad': 'start'}}";

/* One of the recorded variants. */
typedef struct {
  const char *name, *file;
  const char *set[8];
  Sharding sharding;
} Variant;

#define EVIDENCE "semantics/evidence/"
static const Variant variants[] = {
    {"one group for each block", EVIDENCE "golden_fsdp_base.txt", {0}, {8, 1, 4, 0, 1}},
    {"bf16 reduction",
     EVIDENCE "golden_fsdp_bf16red.txt",
     {"precision.reduce=bf16"},
     {8, 1, 2, 0, 1}},
    {"no reshard after forward",
     EVIDENCE "golden_fsdp_noreshard.txt",
     {"fsdp.reshard_after_forward=false"},
     {8, 1, 4, 1, 1}},
    {"a micro-batch without synchronization",
     EVIDENCE "golden_fsdp_accum.txt",
     {"accumulation.steps=2", "accumulation.sync_every_step=false",
      "accumulation.set_last_backward=true"},
     {8, 1, 4, 0, 2}},
    {"reshard to groups of two",
     EVIDENCE "golden_fsdp_int2.txt",
     {"fsdp.reshard_after_forward=2", "fsdp.reshard_root=false"},
     {8, 1, 4, 2, 1}},
    {"two replicas of four shards",
     EVIDENCE "golden_hsdp_base.txt",
     {"mesh.shard=4", "mesh.replicate=2"},
     {4, 2, 4, 0, 1}},
    {"replicas with bf16 reduction",
     EVIDENCE "golden_hsdp_bf16red.txt",
     {"mesh.shard=4", "mesh.replicate=2", "precision.reduce=bf16"},
     {4, 2, 2, 0, 1}},
};

/* Fails with both sides' lines around the first difference. */
static void
assert_same(const char *variant, const char *whose, const Sequence *expected, const Sequence *found)
{
  guint n = MIN(expected->lines->len, found->lines->len), i = 0;
  while (i < n && strcmp(expected->lines->pdata[i], found->lines->pdata[i]) == 0)
    i++;
  if (i == expected->lines->len && i == found->lines->len)
    return;
  g_autoptr(GString) text = g_string_new(NULL);
  for (guint k = i > 6 ? i - 6 : 0; k < i + 6; k++)
    g_string_append_printf(text, "\n%s %4u  %-24s %-24s", k == i ? "=>" : "  ", k,
                           k < expected->lines->len ? (char *) expected->lines->pdata[k] : "(end)",
                           k < found->lines->len ? (char *) found->lines->pdata[k] : "(end)");
  ck_abort_msg("%s: event %u is not that of %s (expected, found):%s", variant, i, whose, text->str);
}

/* ---- from the Program */

static const char stream_letter[STREAM_COUNT] = {
    [STREAM_COMPUTE] = 'D',        [STREAM_COPY_IN] = 'C',    [STREAM_ALL_GATHER] = 'A',
    [STREAM_REDUCE_SCATTER] = 'S', [STREAM_ALL_REDUCE] = 'R', [STREAM_HOST] = 'H',
};

static gboolean
is_of_ops(const Storage *storage)
{
  return storage->category == CATEGORY_TEMPORARY || storage->category == CATEGORY_WORKSPACE ||
         storage->category == CATEGORY_ACTIVATION;
}

static void
add_storage(Sequence *s, const Program *program, const ProgramOp *op)
{
  const Storage *storage = &g_array_index(program->storages, Storage, op->a);
  if (!is_of_ops(storage))
    sequence_add(s, "%c %c%" G_GINT64_FORMAT "%s", stream_letter[storage->stream],
                 op->kind == PROGRAM_ALLOC ? '+' : '-', storage->bytes,
                 storage->category == CATEGORY_UNSHARDED_PARAMETER ? " full" : "");
}

/* Is op i a record that only the next op waits for, on another stream? */
static gboolean
is_join(const GArray *ops, guint i)
{
  const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
  int waits = 0;
  for (guint k = i + 1; k < ops->len; k++) {
    const ProgramOp *later = &g_array_index(ops, ProgramOp, k);
    waits += later->kind == PROGRAM_STREAM_WAIT && later->a == op->a;
  }
  const ProgramOp *next = i + 1 < ops->len ? op + 1 : op;
  return waits == 1 && next->kind == PROGRAM_STREAM_WAIT && next->a == op->a;
}

/* Number of an event in the sequence. */
static int
number_of(GHashTable *numbers, gint32 event)
{
  gpointer number;
  ck_assert_msg(g_hash_table_lookup_extended(numbers, GINT_TO_POINTER(event), NULL, &number),
                "the step waits for event %d, which it has not recorded", event);
  return GPOINTER_TO_INT(number);
}

static Sequence
sequence_of_program(const Program *program)
{
  Sequence s = sequence_new();
  g_autoptr(GHashTable) numbers = g_hash_table_new(NULL, NULL);
  const GArray *ops = program_step(program, STEADY_STEP)->ops;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    char stream = stream_letter[op->stream];
    if (op->kind == PROGRAM_ALLOC || op->kind == PROGRAM_FREE) {
      add_storage(&s, program, op);
    } else if (op->kind == PROGRAM_EVENT_RECORD && is_join(ops, i)) {
      sequence_add(&s, "%c joins %c", stream_letter[(op + 1)->stream], stream);
      i++;
    } else if (op->kind == PROGRAM_EVENT_RECORD) {
      g_hash_table_insert(numbers, GINT_TO_POINTER(op->a),
                          GINT_TO_POINTER(sequence_record(&s, stream)));
    } else if (op->kind == PROGRAM_STREAM_WAIT) {
      sequence_add(&s, "%c wait %d", stream, number_of(numbers, op->a));
    } else if (op->kind == PROGRAM_COLLECTIVE) {
      const Collective *c = &g_array_index(program->collectives, Collective, op->a);
      sequence_add(&s, "%c %s", stream, program_collective_name((CollectiveKind) c->kind));
    } else if (op->kind == PROGRAM_LAUNCH) {
      const Kernel *kernel = &g_array_index(program->kernels, Kernel, op->a);
      if (strcmp(program_text(program, kernel->name), "split_with_sizes_copy") == 0)
        sequence_add(&s, "%c copy_out", stream);
    }
  }
  return s;
}

/* ---- from the reference data */

/* Sizes of what ops make for themselves: activations of 6 x 64 and 6 x 128, the loss. */
static gboolean
is_size_of_ops(char stream, gint64 bytes)
{
  static const gint64 sizes[] = {6 * 64 * BF16, 6 * 128 * BF16, 6 * 128 * FP32, FP32};
  for (guint i = 0; i < G_N_ELEMENTS(sizes); i++)
    if (stream == 'D' && bytes == sizes[i])
      return TRUE;
  return FALSE;
}

/* "RESIZE-ALLOC D  16384 B unsharded", "FREE C 4096 B #1". */
static gboolean
read_reference_storage(Sequence *s, const char *line)
{
  char verb[16], stream;
  gint64 bytes;
  if (sscanf(line, " %15[A-Z-] %c %" G_GINT64_FORMAT " B", verb, &stream, &bytes) != 3)
    return FALSE;
  if (!is_size_of_ops(stream, bytes))
    sequence_add(s, "%c %c%" G_GINT64_FORMAT "%s", stream,
                 g_str_has_suffix(verb, "ALLOC") ? '+' : '-', bytes,
                 g_str_has_prefix(verb, "RESIZE") ? " full" : "");
  return TRUE;
}

/* "A: wait_stream C", "D: wait ev23", "A: record ev23", "A: ALL-GATHER", "D: copy-out kernel". */
static void
read_reference_work(Sequence *s, GHashTable *numbers, const char *line)
{
  static const char *const work[][2] = {{"ALL-GATHER", "all_gather"},
                                        {"REDUCE-SCATTER", "reduce_scatter"},
                                        {"ALL-REDUCE", "all_reduce"},
                                        {"copy-out kernel", "copy_out"}};
  char stream, other;
  int event;
  if (sscanf(line, "%c: wait_stream %c", &stream, &other) == 2)
    sequence_add(s, "%c joins %c", stream, other);
  else if (sscanf(line, "%c: record ev%d", &stream, &event) == 2)
    g_hash_table_insert(numbers, GINT_TO_POINTER(event),
                        GINT_TO_POINTER(sequence_record(s, stream)));
  else if (sscanf(line, "%c: wait ev%d", &stream, &event) == 2)
    sequence_add(s, "%c wait %d", stream, number_of(numbers, event));
  for (guint i = 0; i < G_N_ELEMENTS(work) && line[0] != '\0' && line[1] == ':'; i++)
    if (strcmp(line + 3, work[i][0]) == 0)
      sequence_add(s, "%c %s", line[0], work[i][1]);
}

static Sequence
sequence_of_reference(const char *path)
{
  Sequence s = sequence_new();
  g_autofree char *text = NULL;
  ck_assert(g_file_get_contents(path, &text, NULL, NULL));
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  g_autoptr(GHashTable) numbers = g_hash_table_new(NULL, NULL);
  for (char **line = lines; *line; line++)
    if (**line != '#' && **line != '-' && !read_reference_storage(&s, *line))
      read_reference_work(&s, numbers, *line);
  return s;
}

/* ---- tests */

static Simulated *
lower_variant(const Variant *v)
{
  const Simulation simulation = {network, plan, v->set, 0};
  return simulation_lower(&simulation, STEADY_STEP + 1);
}

START_TEST(a_steady_step_follows_the_rules_of_the_hooks)
{
  const Variant *v = &variants[_i];
  g_autoptr(Simulated) simulated = lower_variant(v);
  g_auto(Sequence) expected = sequence_by_rules(&v->sharding);
  g_auto(Sequence) found = sequence_of_program(simulated->lowered->program);
  assert_same(v->name, "the rules", &expected, &found);
}
END_TEST

START_TEST(a_steady_step_is_that_of_the_real_framework)
{
  const Variant *v = &variants[_i];
  g_autofree char *path = test_reference_path(v->file);
  if (path == NULL) {
    test_note("left out: %s is not there", v->file);
    return;
  }
  g_autoptr(Simulated) simulated = lower_variant(v);
  g_auto(Sequence) expected = sequence_of_reference(path);
  g_auto(Sequence) found = sequence_of_program(simulated->lowered->program);
  ck_assert_uint_gt(expected.lines->len, 100);
  assert_same(v->name, path, &expected, &found);
}
END_TEST

static const Variant *
find_variant(const char *name)
{
  for (guint i = 0; i < G_N_ELEMENTS(variants); i++)
    if (strcmp(variants[i].name, name) == 0)
      return &variants[i];
  g_assert_not_reached();
}

/* A collective's group and bytes: of the whole buffer, as nccl-tests counts them. */
typedef struct {
  CollectiveKind kind;
  const char *communicator;
  int ranks, stride;
  gint64 bytes;
} Expected;

static void
assert_collective(const Program *program, const ProgramOp *op, const Expected *expected)
{
  const Collective *c = &g_array_index(program->collectives, Collective, op->a);
  const Communicator *g = &g_array_index(program->communicators, Communicator, c->communicator);
  ck_assert_int_eq(c->kind, expected->kind);
  ck_assert_str_eq(program_text(program, g->name), expected->communicator);
  ck_assert_int_eq(g->ranks, expected->ranks);
  ck_assert_int_eq(g->stride, expected->stride);
  ck_assert_int_eq(c->bytes, expected->bytes);
}

static void
assert_collectives(const Variant *v, const Expected *expected, guint n)
{
  g_autoptr(Simulated) simulated = lower_variant(v);
  const Program *program = simulated->lowered->program;
  const GArray *ops = program_step(program, STEADY_STEP)->ops;
  guint k = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_COLLECTIVE)
      continue;
    ck_assert_uint_lt(k, n);
    assert_collective(program, op, &expected[k++]);
  }
  ck_assert_uint_eq(k, n);
}

#define GATHER(group, ranks, bytes)                                                                \
  {                                                                                                \
    COLLECTIVE_ALL_GATHER, group, ranks, 1, bytes                                                  \
  }
#define SCATTER(ranks, bytes)                                                                      \
  {                                                                                                \
    COLLECTIVE_REDUCE_SCATTER, "shard", ranks, 1, bytes                                            \
  }
#define REDUCE(bytes)                                                                              \
  {                                                                                                \
    COLLECTIVE_ALL_REDUCE, "replicate", 2, 4, bytes                                                \
  }

/* 4160 elements of a block: 8320 bytes gathered, 16640 reduced; of the root 16384. */
START_TEST(backward_gathers_from_halves_are_over_two_ranks)
{
  static const Expected expected[] = {
      GATHER("shard", 8, 32768), GATHER("shard", 8, 8320), GATHER("shard", 8, 8320),
      GATHER("shard", 8, 8320),  GATHER("slice", 2, 8320), GATHER("slice", 2, 8320),
      SCATTER(8, 16640),         GATHER("slice", 2, 8320), SCATTER(8, 16640),
      SCATTER(8, 16640),         SCATTER(8, 65536),
  };
  assert_collectives(find_variant("reshard to groups of two"), expected, G_N_ELEMENTS(expected));
}
END_TEST

START_TEST(replicas_reduce_shards_over_ranks_a_mesh_row_apart)
{
  static const Expected expected[] = {
      GATHER("shard", 4, 32768),
      GATHER("shard", 4, 8320),
      GATHER("shard", 4, 8320),
      GATHER("shard", 4, 8320),
      GATHER("shard", 4, 8320),
      GATHER("shard", 4, 8320),
      SCATTER(4, 16640),
      REDUCE(4160),
      GATHER("shard", 4, 8320),
      SCATTER(4, 16640),
      REDUCE(4160),
      SCATTER(4, 16640),
      REDUCE(4160),
      SCATTER(4, 65536),
      REDUCE(16384),
  };
  assert_collectives(find_variant("two replicas of four shards"), expected, G_N_ELEMENTS(expected));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("host order");
  TCase *tests = tcase_create("host order");
  int n = G_N_ELEMENTS(variants);
  tcase_add_loop_test(tests, a_steady_step_follows_the_rules_of_the_hooks, 0, n);
  tcase_add_loop_test(tests, a_steady_step_is_that_of_the_real_framework, 0, n);
  tcase_add_test(tests, backward_gathers_from_halves_are_over_two_ranks);
  tcase_add_test(tests, replicas_reduce_shards_over_ranks_a_mesh_row_apart);
  suite_add_tcase(suite, tests);
  return suite;
}
