/* network_flops.h - floating-point operations of a network: those of its kernels, and the field's
 * convention. */
#ifndef HIGHWATER_NETWORK_NETWORK_FLOPS_H
#define HIGHWATER_NETWORK_NETWORK_FLOPS_H

#include "network/network.h"

typedef struct {
  double forward, backward;
} NetworkFlops;

/* FLOPs of one micro-batch with its loss, a multiply-add counting two: the sum over the kernels
 * that the rows of the table of ops give.  Attention counts the causal half of the square, as its
 * kernels do; nothing is recomputed. */
NetworkFlops network_flops(const Network *network);

/* FLOPs that conventions count of a kernel: of attention its whole square, whether or not the
 * kernel does the causal half alone, and nothing that its backward computes again. */
double network_counted_flops(const Kernel *kernel);

/* FLOPs of a token by the convention of PaLM (arXiv 2204.02311, appendix B), forward and backward
 * together: six for each parameter in a matrix product, and 12 L A s for attention over the whole
 * square.  Where parameters meet different numbers of positions, as in encoder and decoder, what
 * that convention stands for: the counted FLOPs of all kernels. */
double network_model_flops_per_token(const Network *network);

#endif
