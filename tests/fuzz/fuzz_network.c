/* fuzz_network.c - any bytes as a network file: fields read as families read them, and the network
 * built. */
#include "fuzz.h"
#include "network/family.h"
#include "spec/network_spec.h"

static const char *const sizes[] = {"hidden_size|n_embd", "num_hidden_layers|n_layer",
                                    "num_attention_heads|n_head", "vocab_size"};

/* The document remembers its first error, so the network is built from one of its own. */
static void
build(const guint8 *data, gsize size)
{
  const NetworkShape shape = {
      .micro_batch = 2,
      .sequence_length = 64,
      .micro_batches = 1,
      .precision = {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, FALSE, FALSE, 0, FALSE},
      .device = {132, 2048, 90}};
  g_autoptr(GError) error = NULL;
  g_autoptr(NetworkSpec) spec = network_spec_parse("input", (const char *) data, size, NULL);
  g_autoptr(Network) network = network_build(spec, &shape, &error);
  g_assert((network == NULL) == (error != NULL));
  g_assert(!error || g_str_has_prefix(error->message, "input: "));
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(NetworkSpec) spec = network_spec_parse("input", (const char *) data, size, &error);
  g_assert((spec == NULL) == (error != NULL));
  if (!spec)
    return 0;
  g_assert(spec->family && implementation_code_name(spec->implementation.code));
  for (gsize i = 0; i < G_N_ELEMENTS(sizes); i++)
    g_assert(network_spec_int(spec, sizes[i], -1) >= 1);
  network_spec_int(spec, "head_dim", 0);
  network_spec_double(spec, "rope_theta", 10000);
  network_spec_bool(spec, "tie_word_embeddings", FALSE);
  network_spec_string(spec, "hidden_act|activation_function", "silu");
  json_reader_finish(spec->reader, &error);
  build(data, size);
  return 0;
}
