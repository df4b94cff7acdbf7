/* program_text.h - short hand-written Programs for the tests: common tables, and the lists as
 * given.
 *
 * Storages are of 16 bytes: 0 "weight" (a parameter), 1 "hidden" (an activation, of stream
 * compute), 2 "gathered" (of stream all_gather), 3 "state" (optimizer state), 4 "small" (8 bytes).
 * Tensor i is all of storage i (fp32); 5 and 6 are the halves of "hidden", 7 is its middle, 8 has
 * no elements. Kernel 0 is "mm"; collective 0 gathers over communicator "shard".  There are 4
 * events, name 0 is "forward", module 0 "layers.0". */
#ifndef HIGHWATER_TESTS_PROGRAM_TEXT_H
#define HIGHWATER_TESTS_PROGRAM_TEXT_H

#define PROGRAM_TABLES                                                                             \
  "highwater-program-1\n"                                                                          \
  "name 0 \"forward\"\nname 1 \"mm\"\nname 2 \"shard\"\nname 3 \"weight\"\nname 4 \"hidden\"\n"    \
  "name 5 \"gathered\"\nname 6 \"state\"\nname 7 \"small\"\n"                                      \
  "module 0 \"layers.0\"\n"                                                                        \
  "layout 0 dtype=fp32 shape=2,2 stride=2,1\n"                                                     \
  "layout 1 dtype=fp32 shape=2 stride=1\n"                                                         \
  "layout 2 dtype=fp32 shape=0,4 stride=4,1\n"                                                     \
  "communicator 0 name=2 ranks=8 stride=1\n"                                                       \
  "kernel 0 kind=gemm dtype=fp32 variant=0 name=1 launches=1 m=2 n=2 k=2 flops=16 bytes=48\n"      \
  "collective 0 kind=all_gather dtype=fp32 communicator=0 name=- bytes=16\n"                       \
  "storage 0 bytes=16 space=device category=parameter stream=compute module=0 what=3\n"            \
  "storage 1 bytes=16 space=device category=activation stream=compute module=0 what=4\n"           \
  "storage 2 bytes=16 space=device category=all_gather_buffer stream=all_gather module=- "         \
  "what=5\n"                                                                                       \
  "storage 3 bytes=16 space=device category=optimizer_state stream=compute module=0 what=6\n"      \
  "storage 4 bytes=8 space=pinned category=temporary stream=compute module=- what=7\n"             \
  "tensor 0 storage=0 layout=0 offset=0\n"                                                         \
  "tensor 1 storage=1 layout=0 offset=0\n"                                                         \
  "tensor 2 storage=2 layout=0 offset=0\n"                                                         \
  "tensor 3 storage=3 layout=0 offset=0\n"                                                         \
  "tensor 4 storage=4 layout=1 offset=0\n"                                                         \
  "tensor 5 storage=1 layout=1 offset=0\n"                                                         \
  "tensor 6 storage=1 layout=1 offset=2\n"                                                         \
  "tensor 7 storage=1 layout=1 offset=1\n"                                                         \
  "tensor 8 storage=1 layout=2 offset=0\n"                                                         \
  "events 4\n"

#endif
