/* fuzz_config_toml.c - any bytes as TOML. */
#include "fuzz_config.h"

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  return fuzz_config(config_tree_read_toml, data, size);
}
