/* numeric_kernel.h - what the kernels of a Program compute, by formula: functions on the operands'
 * views.
 *
 * A formula is a kernel's meaning, or its name (program/meaning.h).  To add one: a function and a
 * row in the table of its file.  Functions are plain arithmetic in double precision; nothing in
 * them knows of ranks' memory, streams or strategies. */
#ifndef HIGHWATER_NUMERIC_NUMERIC_KERNEL_H
#define HIGHWATER_NUMERIC_NUMERIC_KERNEL_H

#include "numeric/numeric_tensor.h"

enum { HOST_NUMBERS = 2 };

/* Where and when a kernel runs. */
typedef struct {
  int rank;       /* global */
  int step;       /* of the training, from 1; 0: construction */
  int update;     /* the optimizer's own count of steps, this one included; 0: construction */
  gint64 sample;  /* first of the micro-batch's samples, among all of the step's */
  gint64 samples; /* how many it has */
  guint64 seed;   /* of the run */
  gint32 module;  /* on whose behalf, or -1 */
  double number[HOST_NUMBERS]; /* that the host had in hand at issue (numeric_numbers.c) */
} NumericPlace;

/* One launch.  Operands are in the Program's order; those that are written hold what was there
 * before. */
typedef struct {
  const Program *program;
  const Kernel *kernel;
  NumericPlace place;
  NumericTensor *operand;
  int operands;
  gboolean is_hosts;                /* the host computes it: what it writes may be its own number */
  const struct _NumericKernel *row; /* that of the formula: set by numeric_kernel_run */
  char *fault;                      /* set by numeric_fail */
} KernelCall;

/* A function of one number, and the kernel's own (0: it has none); or of two that are read. */
typedef double (*NumericFunction)(double x, double number);

typedef struct _NumericKernel NumericKernel;
struct _NumericKernel {
  const char *formula;
  void (*run)(KernelCall *call);
  NumericFunction f; /* of numeric_apply and its like, and of what combines two */
  const char *key;   /* which of the meaning's numbers it takes; NULL: none */
  double otherwise;  /* what that is where the meaning does not say it; NAN: then it is a fault */
};

/* Tables by file; the last row of each is empty. */
extern const NumericKernel numeric_elementwise[];
extern const NumericKernel numeric_binary[];
extern const NumericKernel numeric_masks[];
extern const NumericKernel numeric_reductions[];
extern const NumericKernel numeric_matmuls[];
extern const NumericKernel numeric_norms[];
extern const NumericKernel numeric_attention[];
extern const NumericKernel numeric_losses[];
extern const NumericKernel numeric_copies[];
extern const NumericKernel numeric_optimizers[];
extern const NumericKernel numeric_creations[];
extern const NumericKernel numeric_flags[];
extern const NumericKernel numeric_numbers[];

/* The row of a formula; NULL: there is none. */
const NumericKernel *numeric_kernel_find(const char *formula);

/* Runs a kernel on operands that are loaded.  FALSE and error when nobody knows what it computes,
 * or its operands do not go together. */
gboolean numeric_kernel_run(KernelCall *call, GError **error);

/* ---- for the functions ---- */

/* The i-th operand that is only read, or that is written; NULL and a fault when there are fewer. */
const NumericTensor *numeric_read(KernelCall *call, int i);
NumericTensor *numeric_written(KernelCall *call, int i);
int numeric_reads(const KernelCall *call);
/* A number of the kernel's meaning; a fault when it has none. */
double numeric_number(KernelCall *call, const char *key);
double numeric_number_or(const KernelCall *call, const char *key, double otherwise);
/* f of each element of the operand that is read; and its product with a gradient that comes before
 * it.
 */
void numeric_apply(KernelCall *call);
void numeric_apply_backward(KernelCall *call);
/* The first fault counts. */
void numeric_fail(KernelCall *call, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* The generator's key of what is dropped there: it depends on step and module, and not on whether
 * an op or attention's kernel drops it, so that composed and fused attention drop the same. */
guint64 numeric_dropout_key(const NumericPlace *place);
/* Both have as many elements; else a fault. */
gboolean numeric_same_size(KernelCall *call, const NumericTensor *a, const NumericTensor *b);
/* t broadcast to the shape of `like`, as ATen aligns shapes; NULL and a fault when it cannot be.
 * Caller frees. */
double *numeric_broadcast(KernelCall *call, const NumericTensor *t, const NumericTensor *like);

#endif
