/* program_schema.c - what the Program's tables and values look like, as data. */
#include "program/program_schema.h"

#define FIELD(Row, member, key, kind)                                                              \
  {                                                                                                \
    key, G_STRUCT_OFFSET(Row, member), sizeof(((Row *) NULL)->member), VALUE_##kind                \
  }

static const Field communicator_fields[] = {
    FIELD(Communicator, name, "name", NAME),
    FIELD(Communicator, ranks, "ranks", POSITIVE),
    FIELD(Communicator, stride, "stride", POSITIVE),
};

static const Field kernel_fields[] = {
    FIELD(Kernel, kind, "kind", KERNEL_KIND),
    FIELD(Kernel, dtype, "dtype", DTYPE),
    FIELD(Kernel, variant, "variant", SHORT),
    FIELD(Kernel, name, "name", NAME),
    FIELD(Kernel, launches, "launches", POSITIVE),
    FIELD(Kernel, m, "m", INTEGER),
    FIELD(Kernel, n, "n", INTEGER),
    FIELD(Kernel, k, "k", INTEGER),
    FIELD(Kernel, flops, "flops", REAL),
    FIELD(Kernel, bytes, "bytes", REAL),
    FIELD(Kernel, meaning, "meaning", MEANING),
};

static const Field collective_fields[] = {
    FIELD(Collective, kind, "kind", COLLECTIVE_KIND),
    FIELD(Collective, dtype, "dtype", DTYPE),
    FIELD(Collective, communicator, "communicator", COMMUNICATOR),
    FIELD(Collective, name, "name", ANY_NAME),
    FIELD(Collective, bytes, "bytes", INTEGER),
    FIELD(Collective, meaning, "meaning", MEANING),
};

static const Field storage_fields[] = {
    FIELD(Storage, bytes, "bytes", INTEGER),        FIELD(Storage, space, "space", SPACE),
    FIELD(Storage, category, "category", CATEGORY), FIELD(Storage, stream, "stream", STREAM),
    FIELD(Storage, module, "module", ANY_MODULE),   FIELD(Storage, what, "what", ANY_NAME),
};

static const Field tensor_fields[] = {
    FIELD(Tensor, storage, "storage", STORAGE),
    FIELD(Tensor, layout, "layout", LAYOUT),
    FIELD(Tensor, offset, "offset", INTEGER),
};

static const Field part_fields[] = {
    FIELD(ParameterPart, storage, "storage", STORAGE),
    FIELD(ParameterPart, parameter, "parameter", NAME),
    FIELD(ParameterPart, dtype, "dtype", DTYPE),
    FIELD(ParameterPart, offset, "offset", INTEGER),
    FIELD(ParameterPart, first, "first", INTEGER),
    FIELD(ParameterPart, elements, "elements", INTEGER),
};

#define TABLE(text, Row, array, fields)                                                            \
  {                                                                                                \
    text, G_STRUCT_OFFSET(Program, array), sizeof(Row), G_N_ELEMENTS(fields), fields               \
  }

const TableForm program_table[TABLE_COUNT] = {
    [TABLE_COMMUNICATOR] = TABLE("communicator", Communicator, communicators, communicator_fields),
    [TABLE_KERNEL] = TABLE("kernel", Kernel, kernels, kernel_fields),
    [TABLE_COLLECTIVE] = TABLE("collective", Collective, collectives, collective_fields),
    [TABLE_STORAGE] = TABLE("storage", Storage, storages, storage_fields),
    [TABLE_TENSOR] = TABLE("tensor", Tensor, tensors, tensor_fields),
    [TABLE_PART] = TABLE("part", ParameterPart, parts, part_fields),
};

/* Where a member of a row, or of the Program, lies. */
static gconstpointer
member(gconstpointer row, gsize offset)
{
  return (const guint8 *) row + offset;
}

GArray *
program_table_array(const Program *program, const TableForm *table)
{
  return *(GArray *const *) member(program, table->array);
}

gint64
program_field_get(gconstpointer row, const Field *field)
{
  gconstpointer at = member(row, field->offset);

  switch (field->bytes) {
  case 1:
    return *(const guint8 *) at;
  case 2:
    return *(const guint16 *) at;
  case 4:
    return *(const gint32 *) at;
  default:
    return *(const gint64 *) at;
  }
}

void
program_field_set(gpointer row, const Field *field, gint64 value)
{
  gpointer at = (guint8 *) row + field->offset;

  switch (field->bytes) {
  case 1:
    *(guint8 *) at = (guint8) value;
    break;
  case 2:
    *(guint16 *) at = (guint16) value;
    break;
  case 4:
    *(gint32 *) at = (gint32) value;
    break;
  default:
    *(gint64 *) at = value;
    break;
  }
}

double
program_field_get_real(gconstpointer row, const Field *field)
{
  return *(const double *) member(row, field->offset);
}

void
program_field_set_real(gpointer row, const Field *field, double value)
{
  *(double *) ((guint8 *) row + field->offset) = value;
}

#define NAME_OF(name, text) text,
#define DTYPE_NAME_OF(name, text, bytes) text,

/* What bounds a value from above. */
typedef enum { BY_MAXIMUM, BY_ROWS, BY_TEXTS, BY_NEXT_TEXT, BY_EVENTS } Bound;

/* How a kind of value is written and what bounds it. */
typedef struct {
  const char *name;
  Bound bound;
  gint64 minimum, maximum;
  gsize table; /* offset in Program of the GArray * (BY_ROWS) or GPtrArray * (BY_TEXTS) that the
                  value indexes */
  const char *const *names; /* of an enum */
} ValueForm;

#define NUMBER(text, least, most)                                                                  \
  {                                                                                                \
    .name = text, .minimum = least, .maximum = most                                                \
  }
#define ROW_OF(text, least, array)                                                                 \
  {                                                                                                \
    .name = text, .bound = BY_ROWS, .minimum = least, .table = G_STRUCT_OFFSET(Program, array)     \
  }
#define TEXT_OF(text, least, array)                                                                \
  {                                                                                                \
    .name = text, .bound = BY_TEXTS, .minimum = least, .table = G_STRUCT_OFFSET(Program, array)    \
  }
#define ENUM(text, list, count)                                                                    \
  {                                                                                                \
    .name = text, .maximum = (count) -1, .names = (const char *const[])                            \
    {                                                                                              \
      list(NAME_OF)                                                                                \
    }                                                                                              \
  }

static const ValueForm value_form[VALUE_KIND_COUNT] = {
    [VALUE_NONE] = NUMBER("nothing", 0, 0),
    [VALUE_COUNT] = NUMBER("count", 0, G_MAXINT32),
    [VALUE_POSITIVE] = NUMBER("count", 1, G_MAXINT32),
    [VALUE_INTEGER] = NUMBER("number", 0, G_MAXINT64),
    [VALUE_REAL] = NUMBER("number", 0, 0),
    [VALUE_SHORT] = NUMBER("number", 0, G_MAXUINT16),
    [VALUE_MICRO_BATCH] = NUMBER("micro-batch", -1, G_MAXINT32),
    [VALUE_NAME] = TEXT_OF("name", 0, names),
    [VALUE_ANY_NAME] = TEXT_OF("name", -1, names),
    [VALUE_MEANING] = {.name = "meaning",
                       .bound = BY_NEXT_TEXT,
                       .table = G_STRUCT_OFFSET(Program, names)},
    [VALUE_ANY_MODULE] = TEXT_OF("module", -1, modules),
    [VALUE_COMMUNICATOR] = ROW_OF("communicator", 0, communicators),
    [VALUE_LAYOUT] = ROW_OF("layout", 0, layouts),
    [VALUE_KERNEL] = ROW_OF("kernel", 0, kernels),
    [VALUE_COLLECTIVE] = ROW_OF("collective", 0, collectives),
    [VALUE_STORAGE] = ROW_OF("storage", 0, storages),
    [VALUE_TENSOR] = ROW_OF("tensor", 0, tensors),
    [VALUE_EVENT] = {.name = "event", .bound = BY_EVENTS},
    [VALUE_STREAM] = ENUM("stream", PROGRAM_STREAMS, STREAM_COUNT),
    [VALUE_HOST_WORK] = ENUM("host work", HOST_WORKS, HOST_WORK_COUNT),
    [VALUE_RANGE_KIND] = ENUM("range kind", RANGE_KINDS, RANGE_KIND_COUNT),
    [VALUE_SPACE] = ENUM("space", SPACES, SPACE_COUNT),
    [VALUE_CATEGORY] = ENUM("category", MEMORY_CATEGORIES, CATEGORY_COUNT),
    [VALUE_DTYPE] = {.name = "dtype",
                     .maximum = DTYPE_COUNT - 1,
                     .names = (const char *const[]){DTYPES(DTYPE_NAME_OF)}},
    [VALUE_KERNEL_KIND] = ENUM("kernel kind", KERNEL_KINDS, KERNEL_KIND_COUNT),
    [VALUE_COLLECTIVE_KIND] = ENUM("collective kind", COLLECTIVE_KINDS, COLLECTIVE_KIND_COUNT),
    [VALUE_ROLE] = ENUM("role", ROLES, ROLE_COUNT),
};

void
program_value_range(const Program *program, ValueKind kind, gint64 *minimum, gint64 *maximum)
{
  const ValueForm *form = &value_form[kind];

  *minimum = form->minimum;
  switch (form->bound) {
  case BY_MAXIMUM:
    *maximum = form->maximum;
    break;
  case BY_ROWS:
    *maximum = (gint64) (*(GArray *const *) member(program, form->table))->len - 1;
    break;
  case BY_TEXTS:
    *maximum = (gint64) (*(GPtrArray *const *) member(program, form->table))->len - 1;
    break;
  case BY_NEXT_TEXT:
    *maximum = (gint64) (*(GPtrArray *const *) member(program, form->table))->len;
    break;
  case BY_EVENTS:
    *maximum = program->events - 1;
    break;
  }
}

const char *
program_value_name(ValueKind kind, gint64 value)
{
  const char *const *names = value_form[kind].names;

  return names == NULL ? NULL : names[value];
}

const char *
program_value_kind_name(ValueKind kind)
{
  return value_form[kind].name;
}

gboolean
program_layout_span(const Layout *layout, gint64 *elements)
{
  gint64 last = 0;
  gboolean empty = FALSE;

  for (int i = 0; i < layout->dims; i++) {
    gint64 reach;

    if (layout->shape[i] < 0 || layout->stride[i] < 0)
      return FALSE;
    if (layout->shape[i] == 0)
      empty = TRUE;
    else if (__builtin_mul_overflow(layout->shape[i] - 1, layout->stride[i], &reach) ||
             __builtin_add_overflow(last, reach, &last))
      return FALSE;
  }
  if (empty)
    *elements = 0;
  else if (__builtin_add_overflow(last, 1, elements))
    return FALSE;
  return TRUE;
}

static const guint8 dtype_bytes[DTYPE_COUNT] = {
#define X(name, text, bytes) bytes,
    DTYPES(X)
#undef X
};

gboolean
program_tensor_bytes(const Program *program, const Tensor *tensor, gint64 *begin, gint64 *end)
{
  const Layout *layout = &g_array_index(program->layouts, Layout, tensor->layout);
  gint64 span, size = dtype_bytes[layout->dtype];

  return program_layout_span(layout, &span) &&
         !__builtin_mul_overflow(tensor->offset, size, begin) &&
         !__builtin_mul_overflow(span, size, &span) && !__builtin_add_overflow(*begin, span, end);
}
