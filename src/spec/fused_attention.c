/* fused_attention.c - which fused attention kernel a name means in a version of PyTorch. */
#include "spec/fused_attention.h"

const char *const fused_attention_names[] = {"flash2", "flash1",    "triton", "flash3",
                                             "cudnn",  "efficient", NULL};
G_STATIC_ASSERT(G_N_ELEMENTS(fused_attention_names) == FUSED_COUNT + 1);

/* scaled_dot_product_attention puts cuDNN before flash on sm_90 in 2.5.0 alone (2.5.1 made it
 * opt-in: pytorch pull request 138522), and on sm_90 and sm_100 from 2.11 on. */
static gboolean
prefers_cudnn(int torch, int compute_capability)
{
  if (torch == TORCH_VERSION(2, 5, 0))
    return compute_capability == 90;
  return torch >= TORCH_VERSION(2, 11, 0) &&
         (compute_capability == 90 || compute_capability == 100);
}

FusedAttention
fused_attention_of(AttentionCode code, int torch, int compute_capability)
{
  switch (code) {
  case ATTENTION_FLASH1:
    return FUSED_FLASH1;
  case ATTENTION_TRITON:
    return FUSED_TRITON;
  case ATTENTION_FLASH3:
    return FUSED_FLASH3;
  case ATTENTION_CUDNN:
    return FUSED_CUDNN;
  case ATTENTION_EFFICIENT:
    return FUSED_EFFICIENT;
  default:
    break;
  }
  if (code == ATTENTION_SDPA && prefers_cudnn(torch, compute_capability))
    return FUSED_CUDNN;
  return torch != 0 && torch < TORCH_VERSION(2, 2, 0) ? FUSED_FLASH1 : FUSED_FLASH2;
}
