/* transformers_lm.c - decoder models as Hugging Face transformers runs them. */
#include "network/transformers_lm.h"

gint64 transformers_window(NetworkSpec *spec) { (void) spec; return 0; }
void transformers_define_rotary(Builder *b, CausalLm *lm) { (void) b; (void) lm; }
void rope_transformers(Builder *b, Val qk[2], Val cos, Val sin) { (void) b; (void) qk; (void) cos; (void) sin; }
Val transformers_attend(Builder *b, const CausalLm *lm, gint64 kv_heads, Val q, Val k, Val v, const Val *tables) { (void) b; (void) lm; (void) kv_heads; (void) q; (void) k; (void) v; (void) tables; return q; }
void transformers_write(Builder *b, CausalLm *lm) { builder_fail(b, "not yet %p", (void *) lm); }
