/* device_profile.h - what a GPU can do, and the host that drives it: every constant with its
 * source. */
#ifndef HIGHWATER_SPEC_DEVICE_PROFILE_H
#define HIGHWATER_SPEC_DEVICE_PROFILE_H

#include <glib.h>

/* How its time passes.  A real device's memory may depend on how far it has got when the host asks;
 * the two that take no time bracket it. */
typedef enum {
  CLOCK_RUNNING, /* by the figures below */
  CLOCK_INSTANT, /* whatever is issued is done at once */
  CLOCK_ENDLESS, /* nothing is done before the host waits for something ordered after it */
} DeviceClock;

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
  double peak_bf16_flops; /* per second, dense */
  double peak_fp32_flops; /* per second, as eager fp32 matmuls run by default (no TF32) */
  double gemm_efficiency; /* fraction of peak that big GEMMs reach inside a step */
  double attention_forward_flops, attention_backward_flops; /* per second, flash attention, bf16 */
  double memory_bandwidth;                                  /* bytes per second, specified */
  double memory_efficiency; /* fraction that element-wise kernels reach */
  double kernel_floor_ns, kernel_gap_ns;
  double host_op_forward_ns, host_op_backward_ns, host_hook_ns, host_collective_ns,
      host_optimizer_ns, host_module_ns;
  double cuda_malloc_ns, cuda_free_ns; /* cudaMalloc, cudaFree: they synchronize the device */
  double host_copy_bandwidth;   /* bytes per second, between page-locked memory and the device */
  double host_memory_bandwidth; /* bytes per second that the CPU reads and writes for each GPU */
  double nvlink_busbw; /* bytes per second, bus bandwidth of big collectives inside a node */
  char *source;        /* one line: where the figures come from */
} DeviceProfile;

/* Loads a preset name or file.  Every key but "clock" is required: there are no constants in the
 * code to fall back on. */
DeviceProfile *device_profile_load(const char *preset_or_path, GError **error);
/* The same from memory; name for messages. */
DeviceProfile *device_profile_parse(const char *name, const char *text, gsize length,
                                    GError **error);
void device_profile_free(DeviceProfile *profile);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(DeviceProfile, device_profile_free)

#endif
