/* fuzz_config_yaml.c - any bytes as YAML. */
#include "fuzz_config.h"

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  return fuzz_config(config_tree_read_yaml, data, size);
}
