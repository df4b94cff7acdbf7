/* probe_kernels.h - the few kernels that calibration launches itself. */
#ifndef HIGHWATER_CALIBRATE_PROBE_KERNELS_H
#define HIGHWATER_CALIBRATE_PROBE_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each returns what the launch said. */

/* Does nothing. */
cudaError_t probe_kernel_empty(cudaStream_t stream);
/* target = source + 1 over floats: reads and writes `bytes` each, a multiple of 16. */
cudaError_t probe_kernel_add(void *target, const void *source, size_t bytes, cudaStream_t stream);
/* Fills with 16-bit floats between -1 and 1, so that products draw the power they draw in use;
 * bytes is a multiple of 4. */
cudaError_t probe_kernel_fill(void *target, size_t bytes, uint32_t seed, cudaStream_t stream);
/* So many blocks copy source to target over and over until *stop is not 0, at most for
 * `most_cycles` of the SM's clock. */
cudaError_t probe_kernel_traffic(void *target, const void *source, size_t bytes, int blocks,
                                 const volatile int *stop, long long most_cycles,
                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
