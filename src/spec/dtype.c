/* dtype.c - element types: names and sizes. */
#include "spec/dtype.h"

typedef struct {
  const char *name;
  int bytes;
} DTypeInfo;

static const DTypeInfo dtypes[DTYPE_COUNT] = {
#define X(id, text, size) [DTYPE_##id] = {.name = text, .bytes = size},
    DTYPES(X)
#undef X
};

/* torch.float32 and the like, as people copy them from code and from config.json's torch_dtype. */
static const struct {
  const char *name;
  DType dtype;
} aliases[] = {
    {"float32", DTYPE_FP32},
    {"bfloat16", DTYPE_BF16},
    {"float16", DTYPE_FP16},
};

int
dtype_size(DType dtype)
{
  g_assert((unsigned) dtype < DTYPE_COUNT);
  return dtypes[dtype].bytes;
}

const char *
dtype_name(DType dtype)
{
  g_assert((unsigned) dtype < DTYPE_COUNT);
  return dtypes[dtype].name;
}

int
dtype_from_name(const char *name)
{
  for (int i = 0; i < DTYPE_COUNT; i++)
    if (g_str_equal(name, dtypes[i].name))
      return i;
  for (gsize i = 0; i < G_N_ELEMENTS(aliases); i++)
    if (g_str_equal(name, aliases[i].name))
      return (int) aliases[i].dtype;
  return -1;
}
