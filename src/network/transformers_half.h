/* transformers_half.h - what encoders of transformers do in fp16 alone: they keep their states
 * below its largest number. */
#ifndef HIGHWATER_NETWORK_TRANSFORMERS_HALF_H
#define HIGHWATER_NETWORK_TRANSFORMERS_HALF_H

#include "network/builder.h"

/* hidden_states clamped by two numbers (Whisper), x itself in another dtype; becomes the name
 * hidden_states. */
Val half_clamp(Builder *b, Val x);
/* The same by a tensor, which is less where any state is infinite (T5). */
Val half_clamp_infinite(Builder *b, Val x);
/* The test whether all states are finite, as they are taken to be: else they are clamped (BART). */
void half_test_finite(Builder *b, Val x);

#endif
