/* scaled_network.h - a network of the same structure and smaller sizes. */
#ifndef HIGHWATER_SIMULATE_SCALED_NETWORK_H
#define HIGHWATER_SIMULATE_SCALED_NETWORK_H

#include "simulate/scenario.h"

#define SCALE_MOST 65536

typedef struct {
  int divisor;
  int layers; /* as many at most, whatever the divisor; 0: as the divisor says */
} NetworkScale;

/* Divides the sizes in a config.json by the divisor: layers, heads, their width, hidden and
 * intermediate width, vocabulary, positions, windows.  None falls below what keeps the structure:
 * two layers, as many query heads for each key head as before, a head of eight numbers.  What was
 * changed is appended to `changes` ("hidden_size 4096 -> 32, ...").  FALSE and error: the network
 * has no such sizes. */
char *scaled_network(const InputText *network, const NetworkScale *scale, GString *changes,
                     GError **error);
/* A length that goes with it. */
gint64 scaled_length(gint64 length, int scale);

#endif
