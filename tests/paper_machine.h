/* paper_machine.h - a machine with round figures: a byte and an operation take a nanosecond, so
 * that timelines can be worked out on paper. */
#ifndef HIGHWATER_TESTS_PAPER_MACHINE_H
#define HIGHWATER_TESTS_PAPER_MACHINE_H

/* What a DeviceProfile's initializer has besides its SMs, attention rates and times of the host. */
#define PAPER_DEVICE                                                                               \
  .memory_bytes = G_MAXINT64 / 4, .max_threads_per_sm = 1, .peak_bf16_flops = 1e9,                 \
  .peak_fp32_flops = 1e9, .gemm_efficiency = 1, .gemm_in_step = 1, .gemm_split_k = 1,              \
  .gemm_tiles = 1, .gemm_tile = {{64, 64, 1}}, .power_limit = 1, .power_reference = 1,             \
  .memory_bandwidth = 1e9, .memory_efficiency = 1, .host_copy_bandwidth = 1e9, .nvlink_busbw = 1e9

/* What a ClusterSpec's initializer has: nodes of eight. */
#define PAPER_CLUSTER                                                                              \
  .gpus_per_node = 8, .nics = 8, .nic_bandwidth = 1e9, .intra_busbw = 1e9, .inter_efficiency = 1

#endif
