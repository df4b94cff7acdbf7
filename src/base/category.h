/* category.h - what a piece of memory is for; every allocation carries one. */
#ifndef HIGHWATER_BASE_CATEGORY_H
#define HIGHWATER_BASE_CATEGORY_H

#define MEMORY_CATEGORIES(X)                                                                       \
  X(PARAMETER, "parameter")                                                                        \
  X(OPTIMIZER_STATE, "optimizer_state")                                                            \
  X(SHARDED_GRADIENT, "sharded_gradient")                                                          \
  X(UNSHARDED_PARAMETER, "unsharded_parameter")                                                    \
  X(UNSHARDED_GRADIENT, "unsharded_gradient")                                                      \
  X(ALL_GATHER_BUFFER, "all_gather_buffer")                                                        \
  X(REDUCE_SCATTER_BUFFER, "reduce_scatter_buffer")                                                \
  X(ACTIVATION, "activation")                                                                      \
  X(TEMPORARY, "temporary")                                                                        \
  X(WORKSPACE, "workspace")                                                                        \
  X(OTHER, "other")

typedef enum {
#define X(name, text) CATEGORY_##name,
  MEMORY_CATEGORIES(X)
#undef X
      CATEGORY_COUNT
} Category;

/* Name as printed in Programs and reports. */
const char *category_name(Category category);
/* The category of that name, or -1. */
int category_from_name(const char *name);

#endif
