/* ops_format.h - an exported network as its file has it: modules, parameters, and functions of ops
 * over numbered values.
 *
 * doc/formats.md has the format, tools/export_network.py writes it.  What ops_format_read() gives
 * is consistent: every operand was made before and is still there, sizes are those of tensors that
 * can exist, and each op has operands that its row can work with. */
#ifndef HIGHWATER_NETWORK_OPS_FORMAT_H
#define HIGHWATER_NETWORK_OPS_FORMAT_H

#include "base/json_reader.h"
#include "network/builder.h"

/* A value by its number, or a parameter by its name within the block (of the model in `main`). */
typedef struct {
  gint32 slot;
  const char *parameter; /* NULL: a value.  Borrowed from the document */
} OpsOperand;

typedef enum { OPS_OP, OPS_DROP, OPS_ENTER, OPS_EXIT, OPS_CALL } OpsKind;

typedef struct _OpsRow OpsRow;

typedef struct {
  OpsKind kind;
  const OpsRow *row;  /* of an op */
  const char *module; /* entered or left: its path within the block */
  gint32 block;       /* called */
  int ins, outs;
  OpsOperand in[STATEMENT_SLOTS];
  gint32 first_out; /* outputs are numbered from here on */
  ValueInfo out[OP_OUTPUTS];
  GArray *drops;    /* gint32, or NULL */
  GArray *backward; /* RecordedStep, or NULL */
  gint64 number;    /* "dim" or "offset" */
  gboolean causal, dropout;
  RecordedOp recorded;
} OpsStatement;

typedef struct {
  char *path;         /* "functions[0]", for messages */
  GArray *arguments;  /* ValueInfo */
  GArray *statements; /* OpsStatement */
  gint32 slots, result;
  int others; /* results besides it: of blocks */
  gint32 other[FUNCTION_RESULTS - 1];
} OpsFunction;

typedef struct {
  const char *name;
  int dims;
  gint64 shape[4];
  gboolean trainable;
} OpsParameter;

typedef struct {
  const char *name;
  gint64 bytes;
} OpsBuffer;

typedef struct {
  const char *path, *type;
  gboolean block;
  GArray *parameters; /* OpsParameter */
  GArray *buffers;    /* OpsBuffer */
} OpsModule;

typedef struct {
  const char *name, *weight; /* both in full */
} OpsTied;

typedef struct {
  DType dtype;       /* that the exported model computes in */
  gboolean autocast; /* over parameters in fp32 */
  DType autocast_dtype;
  gint64 batch, sequence_length;
  gint64 vocabulary, hidden, attention_width, embedding_parameters;
  GArray *embedding, *head; /* const char *: paths of the token embedding, and of what comes after
                               the last block */
  gboolean loss_inside, checkpoints_forward;
  GArray *modules;         /* OpsModule, parents before children */
  GArray *tied;            /* OpsTied */
  GArray *inputs;          /* ValueInfo */
  GArray *constants;       /* ValueInfo */
  GArray *constant_names;  /* const char * */
  GPtrArray *functions;    /* OpsFunction * */
  GArray *block_functions; /* gint32 by block */
  OpsFunction *main;       /* arguments: inputs, then constants */
} OpsFormat;

/* Reads a network file of family "ops".  NULL and an error that names file and key. */
OpsFormat *ops_format_read(JsonReader *reader, JsonDocument *document, GError **error);
void ops_format_free(OpsFormat *format);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(OpsFormat, ops_format_free)

/* One function of it, with arguments that are already known (taken) or, NULL, its own
 * ("arguments").  Errors are the document's. */
OpsFunction *ops_function_read(JsonReader *reader, JsonDocument *document, const char *path,
                               GArray *arguments);
void ops_function_free(OpsFunction *function);

/* "views", "saves", "kept", "backward" and "flops" of a statement whose operands and outputs are
 * known. */
void ops_recorded_read(JsonReader *reader, OpsStatement *s);
/* A value as written: "dtype", "shape" and "stride" of the reader's object. */
ValueInfo ops_value_read(JsonReader *reader);
/* Whole numbers of an array, each in [min, max]; at most `most`; returns how many. */
int ops_numbers_read(JsonReader *reader, const char *key, gint64 *numbers, int most, gint64 min,
                     gint64 max);

/* ---- the ops that a file may name (ops_rows.c) ---- */

struct _OpsRow {
  const char *name;
  OpId op;
  int ins, most_ins; /* how many operands */
  int outs;          /* results; 0: one or more */
  /* Can the row work with such operands?  Else a message's text.  in: their values. */
  const char *(*check)(const OpsStatement *s, const ValueInfo *in);
  /* Calls the op; NULL: as the row says, with the result's shape, "dim" or "offset". */
  void (*call)(Builder *b, const OpsStatement *s, const Val *in, Val *out);
};

/* The row of that name, or NULL. */
const OpsRow *ops_row_find(const char *name);
/* Can it have operands and results without elements? */
gboolean ops_row_takes_empty(const OpsRow *row);
/* Names of all, for a message.  Caller frees. */
char *ops_row_names(void);
/* Calls the op of a statement; operands are borrowed, outputs the caller's. */
void ops_row_call(Builder *b, const OpsStatement *s, const Val *in, Val *out);
/* "bf16[2,256]", with strides where they are not row-major.  Caller frees. */
char *ops_value_text(const ValueInfo *value);

#endif
