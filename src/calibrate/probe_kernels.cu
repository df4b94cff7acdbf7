/* probe_kernels.cu - an empty kernel, an element-wise one, a filler, and one that keeps some SMs
 * and the memory busy as a collective does. */
#include "calibrate/probe_kernels.h"

static __global__ void
empty()
{
}

cudaError_t
probe_kernel_empty(cudaStream_t stream)
{
  empty<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

static __global__ void
add(float4 *target, const float4 *source, size_t count)
{
  size_t step = (size_t) gridDim.x * blockDim.x;
  for (size_t i = (size_t) blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    float4 x = source[i];
    target[i] = make_float4(x.x + 1, x.y + 1, x.z + 1, x.w + 1);
  }
}

static const unsigned threads = 512;

static unsigned
blocks_for(size_t count)
{
  size_t blocks = (count + threads - 1) / threads;
  return blocks < 65536 ? (unsigned) (blocks > 0 ? blocks : 1) : 65536u;
}

cudaError_t
probe_kernel_add(void *target, const void *source, size_t bytes, cudaStream_t stream)
{
  size_t count = bytes / sizeof(float4);
  add<<<blocks_for(count), threads, 0, stream>>>((float4 *) target, (const float4 *) source, count);
  return cudaGetLastError();
}

/* A bfloat16 of random sign and mantissa between 1/2 and 1; as the upper half of a float it gives
 * much the same number. */
static __device__ uint32_t
random_half(uint32_t bits)
{
  return 0x3f00u | (bits & 0x807fu);
}

static __global__ void
fill(uint32_t *target, size_t count, uint32_t seed)
{
  size_t step = (size_t) gridDim.x * blockDim.x;
  for (size_t i = (size_t) blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    /* The finalizer of MurmurHash3 (public domain): one well-mixed word per index. */
    uint32_t h = (uint32_t) i ^ seed;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    h ^= h >> 16;
    target[i] = random_half(h) | random_half(h >> 16) << 16;
  }
}

cudaError_t
probe_kernel_fill(void *target, size_t bytes, uint32_t seed, cudaStream_t stream)
{
  size_t count = bytes / sizeof(uint32_t);
  fill<<<blocks_for(count), threads, 0, stream>>>((uint32_t *) target, count, seed);
  return cudaGetLastError();
}

static __global__ void
traffic(float4 *target, const float4 *source, size_t count, const volatile int *stop,
        long long most_cycles)
{
  long long began = clock64();
  size_t first = (size_t) blockIdx.x * blockDim.x + threadIdx.x;
  size_t step = (size_t) gridDim.x * blockDim.x;
  size_t i = first;
  while (*stop == 0 && clock64() - began < most_cycles && first < count)
    /* Some of it at a time: the end is seen soon.  On through all of it: caches do not help. */
    for (int part = 0; part < 64; part++) {
      target[i] = source[i];
      i = i + step < count ? i + step : first;
    }
}

cudaError_t
probe_kernel_traffic(void *target, const void *source, size_t bytes, int blocks,
                     const volatile int *stop, long long most_cycles, cudaStream_t stream)
{
  traffic<<<(unsigned) blocks, threads, 0, stream>>>((float4 *) target, (const float4 *) source,
                                                     bytes / sizeof(float4), stop, most_cycles);
  return cudaGetLastError();
}
