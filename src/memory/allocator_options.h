/* allocator_options.h - PYTORCH_ALLOC_CONF as a value. */
#ifndef HIGHWATER_MEMORY_ALLOCATOR_OPTIONS_H
#define HIGHWATER_MEMORY_ALLOCATOR_OPTIONS_H

#include "memory/caching_allocator.h"

/* Applies "key:value,key:value" as PyTorch reads it from its environment; keys without an effect on
 * device memory are accepted and ignored.  device_total_bytes must be set before: a
 * per_process_memory_fraction is a share of it.  FALSE and error at an unknown key or a value out
 * of range: "allocator option 'max_split_size_mb': ...". */
gboolean allocator_options_parse(AllocatorConfig *config, const char *text, GError **error);

#endif
