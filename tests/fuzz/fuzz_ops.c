/* fuzz_ops.c - any bytes as an exported network: built for the batch that it was exported for, and
 * refused in words that name the file. */
#include "fuzz.h"
#include "network/family.h"
#include "spec/network_spec.h"

/* The number under a key of the document, 1 when there is none such. */
static gint64
number_of(const NetworkSpec *spec, const char *key)
{
  const cJSON *value = cJSON_GetObjectItemCaseSensitive(json_document_root(spec->document), key);
  gboolean fits = cJSON_IsNumber(value) && value->valuedouble >= 1 && value->valuedouble <= 1 << 20;
  return fits ? (gint64) value->valuedouble : 1;
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(NetworkSpec) spec = network_spec_parse("input", (const char *) data, size, &error);
  if (spec == NULL || !g_str_equal(spec->family, "ops"))
    return 0;
  const NetworkShape shape = {
      .micro_batch = number_of(spec, "batch"),
      .sequence_length = number_of(spec, "sequence_length"),
      .micro_batches = 2,
      .precision = {DTYPE_FP32, DTYPE_BF16, DTYPE_BF16, FALSE, TRUE, DTYPE_FP32, FALSE},
      .device = {132, 2048, 90}};
  g_autoptr(Network) network = network_build(spec, &shape, &error);
  g_assert((network == NULL) == (error != NULL));
  g_assert(!error || g_str_has_prefix(error->message, "input: "));
  return 0;
}
