/* ops_value.c - reads the values of an exported network: dtype, sizes and memory order. */
#include "base/units.h"
#include "network/ops_format.h"
#include "network/strides.h"

static const char *const dtypes[] = {
#define X(name, text, bytes) text,
    DTYPES(X)
#undef X
        NULL,
};

int
ops_numbers_read(JsonReader *reader, const char *key, gint64 *numbers, int most, gint64 min,
                 gint64 max)
{
  const cJSON *array = json_reader_raw(reader, key), *item;
  int n = 0;
  if (array == NULL || cJSON_IsNull(array))
    return 0;
  if (!cJSON_IsArray(array)) {
    json_reader_fail(reader, key, "an array of numbers is needed");
    return 0;
  }
  cJSON_ArrayForEach(item, array)
  {
    gboolean whole = cJSON_IsNumber(item) && item->valuedouble >= (double) min &&
                     item->valuedouble <= (double) max &&
                     item->valuedouble == (double) (gint64) item->valuedouble;
    if (n >= most || !whole) {
      json_reader_fail(reader, key,
                       "at most %d whole numbers in %" G_GINT64_FORMAT "..%" G_GINT64_FORMAT
                       " are needed",
                       most, min, max);
      return n;
    }
    numbers[n++] = (gint64) item->valuedouble;
  }
  return n;
}

/* Elements from the first one to the last in memory; FALSE when they are too many for a tensor. */
static gboolean
can_exist(const ValueInfo *value)
{
  gint64 elements = 1, extent = 1, part;
  for (int i = 0; i < value->dims; i++) {
    if (!checked_multiply(elements, value->shape[i], &elements) || elements > BUILDER_MOST_ELEMENTS)
      return FALSE;
    if (!checked_multiply(MAX(value->shape[i] - 1, 0), value->stride[i], &part) ||
        part > BUILDER_MOST_ELEMENTS)
      return FALSE;
    extent += part;
  }
  return extent <= BUILDER_MOST_ELEMENTS;
}

ValueInfo
ops_value_read(JsonReader *reader)
{
  ValueInfo value = {.dtype = DTYPE_FP32};
  gint64 stride[OP_DIMS];
  json_reader_require(reader, "dtype");
  json_reader_require(reader, "shape");
  value.dtype = (guint8) json_reader_enum(reader, "dtype", dtypes, DTYPE_FP32);
  value.dims =
      (guint8) ops_numbers_read(reader, "shape", value.shape, OP_DIMS, 0, BUILDER_MOST_ELEMENTS);
  int strides = ops_numbers_read(reader, "stride", stride, OP_DIMS, 0, BUILDER_MOST_ELEMENTS);
  value_set_contiguous(&value);
  if (strides > 0 && strides != value.dims)
    json_reader_fail(reader, "stride", "%d strides are not those of %d sizes", strides, value.dims);
  else
    for (int i = 0; i < strides; i++)
      value.stride[i] = stride[i];
  if (!can_exist(&value)) {
    json_reader_fail(reader, "shape", "the elements are too many for a tensor");
    value.dims = 0;
  }
  return value;
}
