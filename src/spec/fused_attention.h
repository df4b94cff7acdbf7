/* fused_attention.h - generations of fused attention kernels: their names, and which one a name in
 * a network file means on a device. */
#ifndef HIGHWATER_SPEC_FUSED_ATTENTION_H
#define HIGHWATER_SPEC_FUSED_ATTENTION_H

#include "spec/network_spec.h"

/* Kernel.variant of attention kernels.  What is composed of products and softmaxes (math, eager) is
 * none of them. */
typedef enum {
  FUSED_FLASH2, /* FlashAttention-2, as in PyTorch since 2.2 */
  FUSED_FLASH1, /* FlashAttention 1, as in PyTorch 2.0 and 2.1 */
  FUSED_TRITON, /* the Triton kernel of 2022 and 2023 */
  FUSED_FLASH3,
  FUSED_CUDNN,
  FUSED_EFFICIENT, /* xFormers' memory-efficient kernel */
  FUSED_COUNT
} FusedAttention;

/* "flash2", ..., NULL-terminated, in the order of the enum. */
extern const char *const fused_attention_names[];

/* The generation behind PyTorch's flash backend, or of the kernel that is named.  code: not math
 * nor eager.  torch: TORCH_VERSION(2, 5, 0), or 0: of no version in particular, which is
 * FlashAttention-2.  compute_capability: 90 for sm_90. */
FusedAttention fused_attention_of(AttentionCode code, int torch, int compute_capability);

#endif
