/* device_profile.h - what a GPU can do, and the host that drives it: every constant with its
 * source. */
#ifndef HIGHWATER_SPEC_DEVICE_PROFILE_H
#define HIGHWATER_SPEC_DEVICE_PROFILE_H

#include <glib.h>

#include "base/json_reader.h"

#include "spec/dtype.h"
#include "spec/fused_attention.h"

/* How its time passes.  A real device's memory may depend on how far it has got when the host asks;
 * the two that take no time bracket it. */
typedef enum {
  CLOCK_RUNNING, /* by the figures below */
  CLOCK_INSTANT, /* whatever is issued is done at once */
  CLOCK_ENDLESS, /* nothing is done before the host waits for something ordered after it */
} DeviceClock;

/* Tiles of a matrix product's output that one SM works on at a time, and how fast it is at them
 * beside the best. */
typedef struct {
  int rows, columns;
  double efficiency;
} GemmTile;

/* What fused attention reaches in 16 bits on long sequences, at one head dim, and the length at
 * which it reaches half of that. */
typedef struct {
  FusedAttention kernel;
  int head_dim;
  double forward_flops, backward_flops; /* per second, the causal half counted */
  double forward_half_tokens, backward_half_tokens;
} AttentionRate;

enum { DEVICE_GEMM_TILES = 16, DEVICE_ATTENTION_RATES = 32 };

/* Files in models/device/NAME.json.  Times in microseconds there, ns here where the name says so.
 */
typedef struct {
  char *name; /* "h100-sxm-80gb" */
  DeviceClock clock;
  gint64 memory_bytes;  /* total reported by the driver */
  gint64 context_bytes; /* CUDA context and modules, outside the allocator */
  int sms;
  int max_threads_per_sm;
  int compute_capability;        /* 90 for sm_90 */
  gint64 cublas_workspace_bytes; /* per thread and stream: 32 MiB on sm_90, 8519680 elsewhere */
  gint64 cublaslt_workspace_bytes;
  double peak_bf16_flops, peak_fp16_flops; /* per second, dense */
  double peak_fp32_flops; /* per second, as eager fp32 matmuls run by default (no TF32) */
  double gemm_efficiency; /* fraction of peak that big GEMMs of random numbers reach alone */
  double gemm_in_step;    /* and of that inside a step */
  double gemm_prologue;   /* what filling and draining a tile's pipeline costs, as depth */
  int gemm_split_k;       /* into so many parts a product's depth may be split */
  int gemm_tiles;
  GemmTile gemm_tile[DEVICE_GEMM_TILES];
  int attention_rates;
  AttentionRate attention[DEVICE_ATTENTION_RATES];
  double power_limit, power_reference, power_idle; /* W: of this part; of the one whose rates these
                                                      are; of one that has nothing to do */
  double power_exponent;                           /* clock ~ (power above idle) to this */
  double clock_spread;      /* standard deviation of clocks among GPUs of a kind, of their mean */
  double memory_bandwidth;  /* bytes per second, specified */
  double memory_efficiency; /* fraction that element-wise kernels reach */
  double memory_latency_ns; /* before the first byte comes */
  double kernel_floor_ns, kernel_gap_ns;
  double host_op_forward_ns, host_op_backward_ns, host_hook_ns, host_collective_ns,
      host_optimizer_ns, host_module_ns, host_compiled_region_ns, host_compiled_kernel_ns;
  double cuda_malloc_ns, cuda_free_ns; /* cudaMalloc, cudaFree: they synchronize the device */
  double host_copy_bandwidth;   /* bytes per second, between page-locked memory and the device */
  double host_memory_bandwidth; /* bytes per second that the CPU reads and writes for each GPU */
  double nvlink_busbw; /* bytes per second, bus bandwidth of big collectives inside a node; 0: no
                          NVLink */
  char *source;        /* one line: where the figures come from */
  char **measured;     /* keys of the constants that were measured; NULL: none */
} DeviceProfile;

/* Loads a preset name or file.  Every key but "clock" is required: there are no constants in the
 * code to fall back on. */
DeviceProfile *device_profile_load(const char *preset_or_path, GError **error);
/* The same from memory; name for messages. */
DeviceProfile *device_profile_parse(const char *name, const char *text, gsize length,
                                    GError **error);
/* Peak of the matrix units on operands of a dtype, FLOPs per second. */
double device_profile_peak(const DeviceProfile *profile, DType dtype);
/* Does it have rates of an attention kernel? */
gboolean device_profile_runs(const DeviceProfile *profile, FusedAttention kernel);
/* The same from an object of another file; wrong values are errors of its document. */
DeviceProfile *device_profile_read(JsonReader *reader, const char *name);
void device_profile_free(DeviceProfile *profile);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(DeviceProfile, device_profile_free)

#endif
