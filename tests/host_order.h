/* host_order.h - the order of a step's host, as lines of text, and what FSDP2's hooks make it.
 *
 *   D +128 / D -128   an allocation or free on stream D; "D +128 full" of unsharded parameters
 *   A all_gather      a collective or copy on stream A
 *   A record 3        event 3, numbered by first record
 *   D wait 3          D waits for it
 *   C joins D         C waits for all that D has been given (a record and its only wait)
 *
 * Streams are D (compute), C (copy-in), A (all-gather), S (reduce-scatter), R (all-reduce). */
#ifndef HIGHWATER_TESTS_HOST_ORDER_H
#define HIGHWATER_TESTS_HOST_ORDER_H

#include <glib.h>

typedef struct {
  GPtrArray *lines; /* char * */
  int events;
} Sequence;

Sequence sequence_new(void);
void sequence_clear(Sequence *sequence);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Sequence, sequence_clear)

/* Appends a line. */
void sequence_add(Sequence *sequence, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* Appends a record on the stream; returns its event. */
int sequence_record(Sequence *sequence, char stream);

/* Three Linear(64, 64) with bias, ls.0 to ls.2, between an Embedding(128, 64) and a
 * Linear(64, 128) that are the root's, in bf16: how they are sharded. */
typedef struct {
  int shards, replicas;
  int reduce_size;   /* bytes of an element in reductions */
  int kept;          /* after forward: 0 no block stays gathered, 1 all do, 2 a half of each */
  int micro_batches; /* the last one synchronizes */
} Sharding;

/* One steady step by the rules of the hooks: zero_grad, forward, backward. */
Sequence sequence_by_rules(const Sharding *sharding);

#endif
