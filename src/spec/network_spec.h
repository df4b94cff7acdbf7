/* network_spec.h - a model description as given: a config.json and whose implementation it is.
 *
 * Which fields a family reads is the family's own business (network/family_*.c); this holds the
 * document, the implementation, and getters that follow Hugging Face's habits (aliases, null for
 * default). */
#ifndef HIGHWATER_SPEC_NETWORK_SPEC_H
#define HIGHWATER_SPEC_NETWORK_SPEC_H

#include <glib.h>

#include "base/json_reader.h"

typedef enum {
  CODE_TRANSFORMERS,
  CODE_TORCHTITAN,
  CODE_NANOGPT,
  CODE_LLM_FOUNDRY
} ImplementationCode;
typedef enum { RMS_NORM_FUSED, RMS_NORM_COMPOSITE } RmsNormCode;
typedef enum { ROPE_COMPLEX, ROPE_ROTATE_HALF, ROPE_NONE } RopeCode;
typedef enum { KV_HEADS_NATIVE, KV_HEADS_REPEATED } KvHeadsCode;
typedef enum {
  ATTENTION_SDPA, /* flash, or efficient, or math, as PyTorch chooses */
  ATTENTION_FLASH,
  ATTENTION_FLASH1,
  ATTENTION_TRITON,
  ATTENTION_FLASH3,
  ATTENTION_CUDNN,
  ATTENTION_EFFICIENT,
  ATTENTION_MATH,
  ATTENTION_EAGER,
} AttentionCode;
typedef enum {
  LOSS_FP32,     /* of logits in fp32 */
  LOSS_MODEL,    /* of the logits as they are */
  LOSS_FUSED,    /* flash-attn's kernel */
  LOSS_COMPILED, /* of logits in fp32, compiled */
} LossCode;

/* A version of PyTorch as a number that compares; a patch that is not given is the last one. */
#define TORCH_VERSION(major, minor, patch) (((major) *1000 + (minor)) * 1000 + (patch))
#define TORCH_LAST_PATCH 999

/* Whose code computes the network.  Fields not given have the defaults of `code`:
 * transformers: composite norms, rotate_half, native KV heads (SDPA with enable_gqa), fp32 loss;
 * torchtitan: fused, complex, native, fp32; nanogpt: layer norms, native, fp32; llm-foundry: layer
 * norms, native, fused loss, train metrics. */
typedef struct {
  ImplementationCode code;
  RmsNormCode rms_norm;
  RopeCode rope;
  KvHeadsCode kv_heads;
  AttentionCode attention;
  LossCode loss;
  int torch;              /* TORCH_VERSION that chooses the attention kernel, or 0: not given */
  gboolean train_metrics; /* llm-foundry: each batch's logits are measured again after backward */
} Implementation;

typedef struct {
  char *name;   /* preset name, or file name without folder and .json */
  char *family; /* "model_type", or "family" ("blocks"); as written */
  Implementation implementation;
  JsonDocument *document;
  JsonReader *reader; /* of the top object; "implementation" already read */
} NetworkSpec;

/* Loads a preset name or a file ("-": standard input).  Refuses quantization, adapters and a
 * missing model_type with a line that names file and key.  Unknown keys are left to the family. */
NetworkSpec *network_spec_load(const char *preset_or_path, GError **error);
/* The same from memory; name for messages. */
NetworkSpec *network_spec_parse(const char *name, const char *text, gsize length, GError **error);
/* "torchtitan", as written in a network file. */
const char *implementation_code_name(ImplementationCode code);
/* TRUE for our own format ("family": ...): unknown keys are errors there, the family ends with
 * json_reader_finish(). */
gboolean network_spec_is_own_format(NetworkSpec *spec);
void network_spec_free(NetworkSpec *spec);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(NetworkSpec, network_spec_free)

/* Integer field in 1..2^40 under the first of the names ("hidden_size|n_embd") that is present and
 * not null; fallback when none is (fallback < 0: the field is required). */
gint64 network_spec_int(NetworkSpec *spec, const char *names, gint64 fallback);
double network_spec_double(NetworkSpec *spec, const char *names, double fallback);
gboolean network_spec_bool(NetworkSpec *spec, const char *names, gboolean fallback);
const char *network_spec_string(NetworkSpec *spec, const char *names, const char *fallback);
/* Refuses a boolean field that is there with another value, for this reason. */
void network_spec_expect(NetworkSpec *spec, const char *names, gboolean value, const char *why);
/* Reports an error about such a field, in the spelling that the file has; the first one stays. */
void network_spec_fail(NetworkSpec *spec, const char *names, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

#endif
