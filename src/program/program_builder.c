/* program_builder.c - appends ops and table rows to a Program; equal names, layouts, kernels and
 * collectives are stored once.
 *
 * A step is built of 10^5 ops, so nothing here allocates per op: arrays grow geometrically, and the
 * hash tables are probed with rows on the stack and copy only those that are new. */
#include <string.h>

#include "program/program_builder.h"
#include "program/program_fold.h"

struct _ProgramBuilder {
  Program *program;
  GHashTable *names;        /* text -> id + 1; keys belong to the Program */
  GHashTable *modules;      /* path -> id + 1; keys belong to the Program */
  GHashTable *layouts;      /* Layout -> id + 1; keys are copies */
  GHashTable *kernels;      /* Kernel -> id + 1; keys are copies */
  GHashTable *collectives;  /* Collective -> id + 1; keys are copies */
  GByteArray *alive;        /* per storage: whether it is allocated at this point */
  GByteArray *alive_before; /* the same when the last list began */
  FoldMark mark;            /* lengths of the tables when the last list began */
  OpList *list;             /* the last list, or NULL */
  gint32 module;
  gint32 first_operand; /* of the next op that takes operands */
  gboolean folded;      /* the last list was dropped: its storages' ids are gone */
};

/* Multiplicative mixing after Knuth, TAOCP 3, 6.4, with the 64-bit golden ratio. */
static guint64
mix(guint64 hash, guint64 value)
{
  hash = (hash ^ value) * G_GUINT64_CONSTANT(0x9E3779B97F4A7C15);
  return hash ^ (hash >> 32);
}

static guint64
bits_of(double value)
{
  guint64 bits;

  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static guint
layout_hash(gconstpointer key)
{
  const Layout *layout = key;
  guint64 hash = mix(layout->dtype, layout->dims);

  for (int i = 0; i < layout->dims; i++)
    hash = mix(mix(hash, (guint64) layout->shape[i]), (guint64) layout->stride[i]);
  return (guint) hash;
}

static gboolean
layout_equal(gconstpointer left, gconstpointer right)
{
  const Layout *a = left, *b = right;
  gsize used = a->dims * sizeof(gint64);

  return a->dtype == b->dtype && a->dims == b->dims && memcmp(a->shape, b->shape, used) == 0 &&
         memcmp(a->stride, b->stride, used) == 0;
}

static guint
kernel_hash(gconstpointer key)
{
  const Kernel *kernel = key;
  guint64 hash = mix((guint64) kernel->kind << 32 | (guint64) kernel->dtype << 16 | kernel->variant,
                     (guint64) kernel->name << 32 | (guint32) kernel->launches);

  hash = mix(mix(mix(hash, (guint64) kernel->m), (guint64) kernel->n), (guint64) kernel->k);
  hash = mix(hash, (guint32) kernel->meaning);
  return (guint) mix(mix(hash, bits_of(kernel->flops)), bits_of(kernel->bytes));
}

static gboolean
kernel_equal(gconstpointer left, gconstpointer right)
{
  const Kernel *a = left, *b = right;

  return a->kind == b->kind && a->dtype == b->dtype && a->variant == b->variant &&
         a->name == b->name && a->launches == b->launches && a->m == b->m && a->n == b->n &&
         a->k == b->k && a->meaning == b->meaning && bits_of(a->flops) == bits_of(b->flops) &&
         bits_of(a->bytes) == bits_of(b->bytes);
}

static guint
collective_hash(gconstpointer key)
{
  const Collective *collective = key;
  guint64 hash = mix((guint64) collective->kind << 8 | collective->dtype,
                     (guint64) collective->communicator << 32 | (guint32) collective->name);

  return (guint) mix(mix(hash, (guint64) collective->bytes), (guint32) collective->meaning);
}

static gboolean
collective_equal(gconstpointer left, gconstpointer right)
{
  const Collective *a = left, *b = right;

  return a->kind == b->kind && a->dtype == b->dtype && a->communicator == b->communicator &&
         a->name == b->name && a->bytes == b->bytes && a->meaning == b->meaning;
}

ProgramBuilder *
program_builder_new(void)
{
  ProgramBuilder *builder = g_new0(ProgramBuilder, 1);

  builder->program = program_new();
  builder->names = g_hash_table_new(g_str_hash, g_str_equal);
  builder->modules = g_hash_table_new(g_str_hash, g_str_equal);
  builder->layouts = g_hash_table_new_full(layout_hash, layout_equal, g_free, NULL);
  builder->kernels = g_hash_table_new_full(kernel_hash, kernel_equal, g_free, NULL);
  builder->collectives = g_hash_table_new_full(collective_hash, collective_equal, g_free, NULL);
  builder->alive = g_byte_array_new();
  builder->alive_before = g_byte_array_new();
  builder->module = -1;
  return builder;
}

Program *
program_builder_finish(ProgramBuilder *builder)
{
  Program *program = builder->program;

  builder->program = NULL;
  program_builder_free(builder);
  return program;
}

void
program_builder_free(ProgramBuilder *builder)
{
  if (builder == NULL)
    return;
  program_free(builder->program);
  g_hash_table_unref(builder->names);
  g_hash_table_unref(builder->modules);
  g_hash_table_unref(builder->layouts);
  g_hash_table_unref(builder->kernels);
  g_hash_table_unref(builder->collectives);
  g_byte_array_unref(builder->alive);
  g_byte_array_unref(builder->alive_before);
  g_free(builder);
}

const Program *
program_builder_program(const ProgramBuilder *builder)
{
  return builder->program;
}

/* A list is about as long as the one before: makes room for it at once. */
static OpList *
list_like(const OpList *previous)
{
  OpList *list = op_list_new();

  if (previous != NULL) {
    g_array_set_size(list->ops, previous->ops->len);
    g_array_set_size(list->ops, 0);
  }
  return list;
}

void
program_builder_begin_list(ProgramBuilder *builder)
{
  Program *program = builder->program;

  g_assert(!builder->folded);
  g_assert((guint) builder->first_operand == program->operands->len);
  builder->list = list_like(builder->list);
  g_ptr_array_add(program->lists, builder->list);
  builder->mark = program_fold_mark(program);
  g_byte_array_set_size(builder->alive_before, 0);
  g_byte_array_append(builder->alive_before, builder->alive->data, builder->alive->len);
}

gboolean
program_builder_fold_last_list(ProgramBuilder *builder)
{
  Program *program = builder->program;

  g_assert((guint) builder->first_operand == program->operands->len);
  if (program->lists->len < 3 || builder->folded)
    return FALSE;
  if (!program_fold_last_list(program, builder->mark, builder->alive_before->data))
    return FALSE;
  builder->folded = TRUE;
  builder->list = NULL;
  builder->first_operand = (gint32) program->operands->len;
  return TRUE;
}

gboolean
program_builder_repeat_before_last(ProgramBuilder *builder, int times)
{
  Program *program = builder->program;

  g_assert((guint) builder->first_operand == program->operands->len);
  return program->lists->len >= 3 && !builder->folded &&
         program_fold_before_last_list(program, builder->mark, builder->alive_before->data, times);
}

void
program_builder_add_step(ProgramBuilder *builder)
{
  Program *program = builder->program;
  int last = (int) program->lists->len - 1;

  g_assert(last >= 1);
  g_array_append_val(program->step_list, last);
  program->steps++;
}

static gint32
share_text(GHashTable *ids, GPtrArray *texts, const char *text)
{
  gpointer known = g_hash_table_lookup(ids, text);

  if (known == NULL) {
    char *copy = g_strdup(text);

    g_ptr_array_add(texts, copy);
    known = GUINT_TO_POINTER(texts->len);
    g_hash_table_insert(ids, copy, known);
  }
  return (gint32) (GPOINTER_TO_UINT(known) - 1);
}

static gpointer
copy_of(gconstpointer row, gsize bytes)
{
  return memcpy(g_malloc(bytes), row, bytes);
}

static gint32
share_row(GHashTable *ids, GArray *rows, gconstpointer row)
{
  gpointer known = g_hash_table_lookup(ids, row);

  if (known == NULL) {
    g_array_append_vals(rows, row, 1);
    known = GUINT_TO_POINTER(rows->len);
    g_hash_table_insert(ids, copy_of(row, g_array_get_element_size(rows)), known);
  }
  return (gint32) (GPOINTER_TO_UINT(known) - 1);
}

gint32
program_builder_name(ProgramBuilder *builder, const char *text)
{
  return share_text(builder->names, builder->program->names, text);
}

gint32
program_builder_module(ProgramBuilder *builder, const char *path)
{
  return share_text(builder->modules, builder->program->modules, path);
}

gint32
program_builder_communicator(ProgramBuilder *builder, const char *name, int ranks, int stride)
{
  GArray *table = builder->program->communicators;
  Communicator communicator = {program_builder_name(builder, name), ranks, stride};

  for (guint i = 0; i < table->len; i++) {
    const Communicator *known = &g_array_index(table, Communicator, i);

    if (known->name == communicator.name && known->ranks == ranks && known->stride == stride)
      return (gint32) i;
  }
  g_array_append_val(table, communicator);
  return (gint32) table->len - 1;
}

gint32
program_builder_kernel(ProgramBuilder *builder, const Kernel *kernel)
{
  g_assert(kernel->kind < KERNEL_KIND_COUNT && kernel->launches >= 1);
  return share_row(builder->kernels, builder->program->kernels, kernel);
}

gint32
program_builder_event(ProgramBuilder *builder)
{
  return builder->program->events++;
}

gint32
program_builder_storage(ProgramBuilder *builder, const Storage *storage)
{
  static const guint8 dead = 0;

  g_assert(storage->bytes >= 0 && storage->category < CATEGORY_COUNT &&
           storage->stream < STREAM_COUNT);
  g_array_append_vals(builder->program->storages, storage, 1);
  g_byte_array_append(builder->alive, &dead, 1);
  return (gint32) builder->program->storages->len - 1;
}

void
program_builder_part(ProgramBuilder *builder, const ParameterPart *part)
{
  g_assert(builder->program->lists->len <= 1);
  g_assert(part->storage >= 0 && (guint) part->storage < builder->program->storages->len);
  g_array_append_vals(builder->program->parts, part, 1);
}

gint32
program_builder_tensor(ProgramBuilder *builder, gint32 storage, gint64 offset, const Layout *layout)
{
  Program *program = builder->program;
  Tensor tensor = {.storage = storage, .offset = offset};

  g_assert(storage >= 0 && (guint) storage < program->storages->len);
  g_assert(offset >= 0 && layout->dims <= TENSOR_MAX_DIMS && layout->dtype < DTYPE_COUNT);
  tensor.layout = share_row(builder->layouts, program->layouts, layout);
  g_array_append_val(program->tensors, tensor);
  return (gint32) program->tensors->len - 1;
}

gint32
program_builder_flat_tensor(ProgramBuilder *builder, gint32 storage, gint64 offset, gint64 elements,
                            DType dtype)
{
  Layout layout = {.dtype = (guint8) dtype, .dims = 1, .shape = {elements}, .stride = {1}};

  return program_builder_tensor(builder, storage, offset, &layout);
}

gint32
program_builder_set_module(ProgramBuilder *builder, gint32 module)
{
  gint32 previous = builder->module;

  g_assert(module >= -1 && module < (gint32) builder->program->modules->len);
  builder->module = module;
  return previous;
}

void
program_builder_operand(ProgramBuilder *builder, gint32 tensor, Role role)
{
  Operand operand = {tensor, (gint32) role};

  g_assert(tensor >= 0 && (guint) tensor < builder->program->tensors->len);
  g_array_append_val(builder->program->operands, operand);
}

/* Appends one op with the operands gathered since the last one. */
static void
append(ProgramBuilder *builder, ProgramOpKind kind, StreamId stream, gint32 a, gint32 b, gint32 c)
{
  guint operands = builder->program->operands->len - (guint) builder->first_operand;
  ProgramOp op = {
      .kind = (guint8) kind,
      .stream = (guint8) stream,
      .operands = (guint16) operands,
      .first_operand = operands > 0 ? builder->first_operand : 0,
      .a = a,
      .b = b,
      .c = c,
      .module = builder->module,
  };

  g_assert(builder->list != NULL);
  g_assert(operands == 0 || (program_op_form[kind].operands && operands <= G_MAXUINT16));
  g_array_append_val(builder->list->ops, op);
  builder->first_operand += (gint32) operands;
}

static StreamId
stream_of(const ProgramBuilder *builder, gint32 storage)
{
  g_assert(storage >= 0 && (guint) storage < builder->program->storages->len);
  return g_array_index(builder->program->storages, Storage, storage).stream;
}

void
program_builder_alloc(ProgramBuilder *builder, gint32 storage)
{
  append(builder, PROGRAM_ALLOC, stream_of(builder, storage), storage, 0, 0);
  builder->alive->data[storage] = TRUE;
}

void
program_builder_release(ProgramBuilder *builder, gint32 storage)
{
  append(builder, PROGRAM_FREE, stream_of(builder, storage), storage, 0, 0);
  builder->alive->data[storage] = FALSE;
}

void
program_builder_record_stream(ProgramBuilder *builder, gint32 storage, StreamId stream)
{
  g_assert(storage >= 0 && (guint) storage < builder->program->storages->len);
  append(builder, PROGRAM_RECORD_STREAM, stream, storage, 0, 0);
}

void
program_builder_launch(ProgramBuilder *builder, StreamId stream, gint32 kernel)
{
  append(builder, PROGRAM_LAUNCH, stream, kernel, 0, 0);
}

void
program_builder_host_compute(ProgramBuilder *builder, gint32 kernel)
{
  append(builder, PROGRAM_HOST_COMPUTE, STREAM_HOST, kernel, 0, 0);
}

void
program_builder_host_reduce(ProgramBuilder *builder, gint32 communicator)
{
  append(builder, PROGRAM_HOST_REDUCE, STREAM_HOST, communicator, 0, 0);
}

void
program_builder_copy(ProgramBuilder *builder, StreamId stream, gint32 kernel)
{
  append(builder, PROGRAM_COPY, stream, kernel, 0, 0);
}

void
program_builder_collective(ProgramBuilder *builder, StreamId stream, const Collective *collective)
{
  Program *program = builder->program;

  g_assert(collective->communicator >= 0 &&
           (guint) collective->communicator < program->communicators->len);
  append(builder, PROGRAM_COLLECTIVE, stream,
         share_row(builder->collectives, program->collectives, collective), 0, 0);
}

void
program_builder_record(ProgramBuilder *builder, StreamId stream, gint32 event)
{
  append(builder, PROGRAM_EVENT_RECORD, stream, event, 0, 0);
}

void
program_builder_wait(ProgramBuilder *builder, StreamId stream, gint32 event)
{
  append(builder, PROGRAM_STREAM_WAIT, stream, event, 0, 0);
}

void
program_builder_event_sync(ProgramBuilder *builder, gint32 event)
{
  append(builder, PROGRAM_EVENT_SYNC, STREAM_HOST, event, 0, 0);
}

void
program_builder_stream_sync(ProgramBuilder *builder, StreamId stream)
{
  append(builder, PROGRAM_STREAM_SYNC, stream, 0, 0, 0);
}

void
program_builder_host_work(ProgramBuilder *builder, HostWork kind, int count)
{
  append(builder, PROGRAM_HOST_WORK, STREAM_HOST, (gint32) kind, count, 0);
}

void
program_builder_empty_cache(ProgramBuilder *builder)
{
  append(builder, PROGRAM_EMPTY_CACHE, STREAM_HOST, 0, 0, 0);
}

void
program_builder_push(ProgramBuilder *builder, RangeKind kind, const char *name, int micro_batch)
{
  append(builder, PROGRAM_RANGE_PUSH, STREAM_HOST, program_builder_name(builder, name),
         (gint32) kind, kind == RANGE_PHASE ? micro_batch : -1);
}

void
program_builder_pop(ProgramBuilder *builder)
{
  append(builder, PROGRAM_RANGE_POP, STREAM_HOST, 0, 0, 0);
}
