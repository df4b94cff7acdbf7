/* process_memory.h - what the allocator may reserve of a device, beside what the process holds
 * outside of it. */
#ifndef HIGHWATER_SIMULATE_PROCESS_MEMORY_H
#define HIGHWATER_SIMULATE_PROCESS_MEMORY_H

#include "exec/executor.h"

/* Fills what the config, whose cluster is set, says of the device's memory: bytes outside the
 * allocator, its limit and the total.  limit: bytes that were asked for, 0: what the device has
 * left. */
void limit_memory(ExecutorConfig *config, const Program *program, gint64 limit);

#endif
