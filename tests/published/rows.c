/* rows.c - what each source of published measurements trained, on what, as inputs of ours.
 *
 * Everything here is read in the tables or in the programs that made them (named at each source).
 * Nothing is fitted: sources differ in what they ran, not in constants. */
#include "published/rows.h"

#include <string.h>

#include "published/csv.h"

/* JSON in which ' stands for ". */
static char *json(const char *format, ...) G_GNUC_PRINTF(1, 2);

static char *
json(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  char *text = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  return g_strdelimit(text, "'", '"');
}

/* Nodes of 8 behind NVSwitch. */
static char *
nodes_of_8(const char *device, const char *fabric, int nics, int gbit)
{
  return json("{'device': '%s', 'gpus_per_node': 8, 'intra_node': {'fabric': 'nvswitch'},"
              " 'inter_node': {'fabric': '%s', 'nics': %d, 'gbit_per_nic': %d}}",
              device, fabric, nics, gbit);
}

static char *
llama(const Csv *csv, guint i, const char *ffn, const char *implementation)
{
  int kv_heads =
      strcmp(ffn, "ffn") == 0 ? csv_int(csv, i, "n_heads") : csv_int(csv, i, "n_kv_heads");
  int width = strcmp(ffn, "ffn") == 0 ? 11008 : csv_int(csv, i, "ffn_dim");
  return json("{'model_type': 'llama', 'hidden_size': %d, 'intermediate_size': %d,"
              " 'num_hidden_layers': %d, 'num_attention_heads': %d, 'num_key_value_heads': %d,"
              " 'vocab_size': %d, 'implementation': {%s}}",
              csv_int(csv, i, "d_model"), width, csv_int(csv, i, "n_layers"),
              csv_int(csv, i, "n_heads"), kv_heads, csv_int(csv, i, "vocab"), implementation);
}

/* ---- torchtitan: torchtitan/parallelisms/parallelize_llama.py of 2024: one group for embedding,
 * norm and output, the last block stays gathered; train.py: AdamW as foreach, clipping at 1 ---- */

#define TITAN_PLAN                                                                                 \
  "'strategy': 'fsdp2', 'mesh': {'shard': %d},"                                                    \
  " 'precision': {'compute': 'bf16', 'reduce': 'fp32'},"                                           \
  " 'batch': {'micro_batch': %d, 'sequence_length': %d},"                                          \
  " 'optimizer': {'implementation': 'foreach', 'clip_grad_norm': 1.0},"                            \
  " 'fsdp': {'embedding': 'root', 'head': 'root', 'reshard_after_forward': null,"                  \
  " 'reshard_last_block': false}"

static gboolean
titan_row(const Csv *csv, guint i, PublishedRow *row)
{
  if (!csv_is(csv, i, "float8", "none") || csv_int(csv, i, "tp") != 1 ||
      csv_int(csv, i, "pp") != 1 || csv_int(csv, i, "cp") != 1)
    return FALSE;
  gboolean compiled = csv_is(csv, i, "torch_compile", "Y");
  int gpus = csv_int(csv, i, "gpus");
  row->label = g_strdup_printf("8B, %d GPUs, %s", gpus, compiled ? "compiled" : "eager");
  row->measured = csv_number(csv, i, "tps_per_gpu");
  row->network = llama(csv, i, "ffn_dim",
                       "'code': 'torchtitan', 'rms_norm': 'composite', 'kv_heads': 'repeated',"
                       " 'torch': '2.6'");
  row->plan = json("{" TITAN_PLAN ", 'allocator': {'expandable_segments': true},"
                   " 'activation_checkpointing': {'policy': 'selective_op'}, 'compile': '%s'}",
                   gpus, csv_int(csv, i, "local_batch"), csv_int(csv, i, "seq_len"),
                   compiled ? "per_block" : "none");
  row->cluster = nodes_of_8("h100-sxm-96gb", "infiniband", 8, 400);
  return TRUE;
}

/* Its documentation's names of checkpointing. */
static const char *
titan_checkpointing(const Csv *csv, guint i)
{
  if (csv_is(csv, i, "ac", "selective layer"))
    return "'policy': 'every_n', 'every': 2";
  if (csv_is(csv, i, "ac", "selective op"))
    return "'policy': 'selective_op'";
  return csv_is(csv, i, "ac", "full") ? "'policy': 'full'" : "'policy': 'none'";
}

/* models/norms.py: the default of early 2024 was a fused RMSNorm in Triton. */
static gboolean
titan_history_row(const Csv *csv, guint i, PublishedRow *row)
{
  if (!csv_is(csv, i, "outcome", "ok") || csv_int(csv, i, "tp") != 1)
    return FALSE;
  row->label = g_strdup_printf("%s, batch %s, %s", csv_text(csv, i, "model"),
                               csv_text(csv, i, "local_batch"), csv_text(csv, i, "ac"));
  row->measured = csv_number(csv, i, "tps_per_gpu");
  row->network = llama(csv, i, "ffn_dim",
                       "'code': 'torchtitan', 'rms_norm': 'fused', 'kv_heads': 'repeated',"
                       " 'torch': '2.4'");
  row->plan =
      json("{" TITAN_PLAN ", 'activation_checkpointing': {%s}}", csv_int(csv, i, "gpus"),
           csv_int(csv, i, "local_batch"), csv_int(csv, i, "seq_len"), titan_checkpointing(csv, i));
  row->cluster = nodes_of_8("a100-sxm-80gb", "infiniband", 8, 200);
  return TRUE;
}

/* Of these models the larger ones are too large for a device before they are sharded. */
#define MADE_ON_HOST " 'phases': {'initialize': {'from': 'full', 'on': 'cpu'}},"

/* ---- fms-fsdp: main_training_llama.py: FSDP1 by block, everything in bf16, AdamW as foreach,
 * clipping at 1; checkpointing of a fraction p of the blocks afterwards (policies/ac_handler.py),
 * which is not published but follows from the hardware's and the model's FLOPs: hfu / mfu = (3 + p)
 * / 3 ---- */

static gboolean
fms_row(const Csv *csv, guint i, PublishedRow *row)
{
  gboolean a100 = strstr(csv_text(csv, i, "gpu"), "A100") != NULL;
  gboolean hybrid = csv_is(csv, i, "sharding", "HSDP");
  int gpus = csv_int(csv, i, "gpus"), shard = hybrid ? 8 : gpus;
  double p = 3 * (csv_number(csv, i, "hfu") / csv_number(csv, i, "mfu") - 1);
  p = CLAMP(p, 0, 1);
  g_autofree char *checkpointing =
      p > 0 ? g_strdup_printf("'policy': 'fraction', 'fraction': %.3f", p)
            : g_strdup("'policy': 'none'");
  row->label = g_strdup_printf("%s, %d %s, %s, p = %.2f", csv_text(csv, i, "model"), gpus,
                               a100 ? "A100" : "H100", csv_text(csv, i, "sharding"), p);
  row->measured = csv_number(csv, i, "tokens_per_s_per_gpu");
  row->network = llama(csv, i, "ffn_dim",
                       "'code': 'torchtitan', 'loss': 'model', 'kv_heads': 'repeated',"
                       " 'torch': '2.3'");
  row->plan = json("{'strategy': 'fsdp1', 'mesh': {'shard': %d, 'replicate': %d}," MADE_ON_HOST
                   " 'precision': {'compute': 'bf16', 'reduce': 'bf16'},"
                   " 'batch': {'micro_batch': %d, 'sequence_length': %d},"
                   " 'optimizer': {'implementation': 'foreach', 'clip_grad_norm': 1.0},"
                   " 'activation_checkpointing': {%s}, 'compile': 'per_block',"
                   " 'fsdp': {'sharding_strategy': '%s', 'wrap': 'all'}}",
                   shard, gpus / shard, csv_int(csv, i, "micro_batch"), csv_int(csv, i, "seq_len"),
                   checkpointing, hybrid ? "HYBRID_SHARD" : "FULL_SHARD");
  row->cluster = a100 ? nodes_of_8("a100-sxm-80gb", "infiniband", 4, 100)
                      : nodes_of_8("h100-sxm-80gb", "infiniband", 8, 100);
  return TRUE;
}

/* ---- llm-foundry: scripts/train/benchmarking: Composer's FSDP by block, a reduction in every
 * micro-batch, Composer's own AdamW, clipping at 1; attn_impl triton on both devices
 * (submit_benchmarks.py).  The A100 ran PyTorch 1.13.1 (its default image), whose checkpoints
 * recompute a block to its end; the H100 2.1.0 ---- */

static gboolean
foundry_row(const Csv *csv, guint i, PublishedRow *row, const char *gpu)
{
  if (!csv_is(csv, i, "gpu", gpu) || strstr(csv_text(csv, i, "precision"), "fp8") != NULL)
    return FALSE;
  gboolean a100 = strcmp(gpu, "a100_40gb") == 0;
  gboolean pure = csv_is(csv, i, "fsdp_mixed_precision", "PURE");
  gboolean full = csv_is(csv, i, "activation_checkpointing", "True");
  int length = csv_int(csv, i, "seq_len");
  row->label =
      g_strdup_printf("%s, %s GPUs, %d tokens, batch %s x %s%s", csv_text(csv, i, "model"),
                      csv_text(csv, i, "gpus"), length, csv_text(csv, i, "micro_batch_per_gpu"),
                      csv_text(csv, i, "grad_accum"), full ? ", full" : "");
  row->measured = csv_number(csv, i, "tokens_per_s_per_gpu");
  row->network = json("{'model_type': 'mpt', 'd_model': %d, 'n_layers': %d, 'n_heads': %d,"
                      " 'vocab_size': %d, 'expansion_ratio': 4, 'max_seq_len': %d, 'no_bias': true,"
                      " 'attn_config': {'attn_impl': 'triton'}}",
                      csv_int(csv, i, "d_model"), csv_int(csv, i, "n_layers"),
                      csv_int(csv, i, "n_heads"), csv_int(csv, i, "vocab"), length);
  row->plan = json("{'strategy': 'fsdp1', 'mesh': {'shard': %d}," MADE_ON_HOST
                   " 'precision': {'compute': 'bf16', 'reduce': '%s'},"
                   " 'batch': {'micro_batch': %d, 'sequence_length': %d},"
                   " 'accumulation': {'steps': %d, 'sync_every_step': true},"
                   " 'optimizer': {'implementation': 'composer', 'clip_grad_norm': 1.0},"
                   " 'activation_checkpointing': {%s},"
                   " 'fsdp': {'sharding_strategy': '%s'}}",
                   csv_int(csv, i, "gpus"), pure ? "bf16" : "fp32",
                   csv_int(csv, i, "micro_batch_per_gpu"), length, csv_int(csv, i, "grad_accum"),
                   full ? (a100 ? "'policy': 'full', 'early_stop': false" : "'policy': 'full'")
                        : "'policy': 'none'",
                   csv_text(csv, i, "sharding"));
  row->cluster = a100 ? nodes_of_8("a100-sxm-40gb", "roce", 8, 200)
                      : nodes_of_8("h100-sxm-80gb", "infiniband", 8, 400);
  return TRUE;
}

static gboolean
foundry_h100_row(const Csv *csv, guint i, PublishedRow *row)
{
  return foundry_row(csv, i, row, "h100_80gb");
}

static gboolean
foundry_a100_row(const Csv *csv, guint i, PublishedRow *row)
{
  return foundry_row(csv, i, row, "a100_40gb");
}

/* ---- InternEvo: configs/7B_sft.py: ZeRO-1 over zero1 ranks (-1: all; on 8 GPUs 8 is all), fused
 * norms and rotary embeddings, FlashAttention 1, Adam as one kernel; a reentrant checkpoint
 * (internlm/solver/activation_checkpoint.py) ---- */

static gboolean
internevo_row(const Csv *csv, guint i, PublishedRow *row)
{
  if (csv_is(csv, i, "table", "memory") || csv_int(csv, i, "tp") != 1)
    return FALSE;
  gboolean full = csv_is(csv, i, "activation_ckpt", "true");
  int gpus = csv_int(csv, i, "gpus"), zero1 = csv_int(csv, i, "zero1");
  int shard = zero1 < 0 ? gpus : MIN(zero1, gpus);
  row->label =
      g_strdup_printf("%d GPUs, zero1 %d, batch %s x %s%s%s", gpus, zero1,
                      csv_text(csv, i, "micro_bsz"), csv_text(csv, i, "micro_num"),
                      full ? ", full" : "", csv_is(csv, i, "pack", "TRUE") ? ", second table" : "");
  row->measured = csv_number(csv, i, "tokens_per_s_per_gpu");
  row->network = llama(csv, i, "ffn", "'code': 'torchtitan', 'attention': 'flash1'");
  row->plan = json("{'strategy': 'internevo', 'mesh': {'shard': %d, 'replicate': %d},"
                   " 'precision': {'parameters': 'bf16'},"
                   " 'batch': {'micro_batch': %d, 'sequence_length': %d},"
                   " 'accumulation': {'steps': %d}, 'optimizer': {'implementation': 'fused',"
                   " 'clip_grad_norm': 1.0}, 'activation_checkpointing': {%s}}",
                   shard, gpus / shard, csv_int(csv, i, "micro_bsz"), csv_int(csv, i, "seq_len"),
                   csv_int(csv, i, "micro_num"),
                   full ? "'policy': 'full', 'early_stop': false" : "'policy': 'none'");
  row->cluster = nodes_of_8("a100-sxm-80gb", "roce", 4, 100);
  return TRUE;
}

/* ---- all ---- */

const PublishedSource published_sources[] = {
    {"torchtitan", "torchtitan_bench.csv",
     "H100 96 GB at 500 W, 8 x 400 Gbit; composite RMSNorm, foreach AdamW, PyTorch of December "
     "2024",
     12, 0, 15},
    {"torchtitan 2024", "torchtitan_2024_history.csv",
     "eager; fused RMSNorm; the network is not published: 8 x 200 Gbit", 12, 0, 18},
    {"fms-fsdp", "fms_fsdp_llama2.csv",
     "compiled; p of the blocks checkpointed, from the published hfu / mfu; loss of bf16 logits",
     15, 0, 25},
    {"llm-foundry H100", "llm_foundry_mpt.csv",
     "eager; Triton attention of 2023; fp32 reductions; PyTorch 2.1; the network is not published: "
     "8 x 400 Gbit",
     12, 20, 0},
    {"llm-foundry A100", "llm_foundry_mpt.csv",
     "eager; A100 40 GB; Triton attention of 2023; bf16 reductions; PyTorch 1.13, so no early "
     "stop; 8 x 200 Gbit RoCE",
     10, 18, 0},
    {"InternEvo", "internevo.csv",
     "eager; FlashAttention 1; fused norms; reentrant checkpoints; 4 x 100 Gbit RoCE; packed rows "
     "as unpacked ones",
     12, 25, 0},
    {0},
};

static gboolean (*const make_row[])(const Csv *csv, guint i, PublishedRow *row) = {
    titan_row, titan_history_row, fms_row, foundry_h100_row, foundry_a100_row, internevo_row,
};

static void
clear_row(gpointer data)
{
  PublishedRow *row = data;
  g_free(row->label);
  g_free(row->network);
  g_free(row->plan);
  g_free(row->cluster);
}

GArray *
published_rows(const char *folder, GError **error)
{
  g_autoptr(GArray) rows = g_array_new(FALSE, TRUE, sizeof(PublishedRow));
  g_array_set_clear_func(rows, clear_row);
  for (guint k = 0; published_sources[k].name; k++) {
    g_autofree char *path = g_build_filename(folder, published_sources[k].file, NULL);
    g_autoptr(Csv) csv = csv_load(path, error);
    if (csv == NULL)
      return NULL;
    for (guint i = 0; i < csv->rows->len; i++) {
      PublishedRow row = {.source = published_sources[k].name};
      if (make_row[k](csv, i, &row))
        g_array_append_val(rows, row);
    }
  }
  return g_steal_pointer(&rows);
}
