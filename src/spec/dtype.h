/* dtype.h - element types. */
#ifndef HIGHWATER_SPEC_DTYPE_H
#define HIGHWATER_SPEC_DTYPE_H

#include <glib.h>

#define DTYPES(X)                                                                                  \
  X(FP32, "fp32", 4)                                                                               \
  X(BF16, "bf16", 2)                                                                               \
  X(FP16, "fp16", 2)                                                                               \
  X(COMPLEX64, "complex64", 8)                                                                     \
  X(INT64, "int64", 8)                                                                             \
  X(INT32, "int32", 4)                                                                             \
  X(UINT8, "uint8", 1)                                                                             \
  X(BOOL, "bool", 1)

typedef enum {
#define X(name, text, bytes) DTYPE_##name,
  DTYPES(X)
#undef X
      DTYPE_COUNT
} DType;

/* Bytes per element. */
int dtype_size(DType dtype);
const char *dtype_name(DType dtype);
/* The dtype of that name ("float32", "bfloat16" and "float16" too), or -1. */
int dtype_from_name(const char *name);

#endif
