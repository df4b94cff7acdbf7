/* fsdp_options.c - the plan's section "fsdp": what FSDP1 and FSDP2 call the same has one key. */
#include "strategy/fsdp_options.h"

static const char *const places[] = {"root", "own", NULL};
static const char *const embedding_places[] = {"root", "own", "untied", NULL};
static const char *const sharding_strategies[] = {"FULL_SHARD",   "SHARD_GRAD_OP",       "NO_SHARD",
                                                  "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", NULL};
static const char *const wraps[] = {"alike", "all", NULL};
static const char *const moments[] = {"pre", "post", "none", NULL};

static const OptionInfo options[] = {
    {"blocks_per_group", OPTION_INT, "1", 0, 1 << 20, NULL,
     "blocks in one group; 0: everything in the root's"},
    {"groups", OPTION_NAME_LISTS, "null", 0, 0, NULL,
     "groups by paths of modules: a list is one group, a name alone one for each match"},
    {"embedding", OPTION_ENUM, "\"root\"", 0, 0, embedding_places,
     "the embedding is in the root's group, in its own (an output layer tied to it then isn't), or "
     "in its own unless it is tied: then with the output layer"},
    {"head", OPTION_ENUM, "\"root\"", 0, 0, places,
     "final norm and output layer: in the root's group, or in their own"},
    {"reshard_after_forward", OPTION_BOOL_OR_INT, "null", 1, 1 << 20, NULL,
     "free gathered parameters after forward: true, false, a smaller group's size, or null (all "
     "but the root)"},
    {"reshard_head", OPTION_BOOL, "false", 0, 0, NULL,
     "the head's own group follows reshard_after_forward too"},
    {"reshard_root", OPTION_BOOL, "true", 0, 0, NULL,
     "the root's group follows reshard_after_forward; false: it has the library's default and "
     "stays "
     "gathered"},
    {"reshard_last_block", OPTION_BOOL, "true", 0, 0, NULL,
     "false: the last group of blocks stays gathered"},
    {"forward_prefetch", OPTION_INT, "0", 0, 1 << 20, NULL,
     "groups gathered ahead explicitly in forward; 0: implicit; FSDP1: 1 is True"},
    {"backward_prefetch", OPTION_NAME_OR_INT, "0", 0, 1 << 20, moments,
     "the same in backward; FSDP1: before or after a group's gradients are computed, 0 is pre"},
    {"prefetch_budget", OPTION_SIZE, "null", 1, 0, NULL,
     "FSDP2 only: gathers ahead as many groups as fit into so many bytes, instead of a number"},
    {"sharding_strategy", OPTION_ENUM, "\"FULL_SHARD\"", 0, 0, sharding_strategies,
     "FSDP1 only: what is sharded, and when parameters are freed"},
    {"limit_all_gathers", OPTION_BOOL, "true", 0, 0, NULL,
     "FSDP1 only: the host waits so that at most two all-gathers are in flight"},
    {"ignored", OPTION_NAME_LISTS, "null", 0, 0, NULL,
     "FSDP2 only: patterns of parameters that stay whole on every rank and are not reduced"},
    {"wrap", OPTION_ENUM, "\"alike\"", 0, 0, wraps,
     "FSDP1 only: of blocks of which some are checkpointed those like the first, or all"},
    {"cast_buffers", OPTION_BOOL, "false", 0, 0, NULL,
     "FSDP1 only: floating buffers are cast to precision.compute too (buffer_dtype)"},
    {"use_orig_params", OPTION_BOOL, "true", 0, 0, NULL,
     "FSDP1 only: the optimizer sees the parameters; false: the flat ones"},
    {"cpu_offload", OPTION_BOOL, "false", 0, 0, NULL,
     "shards, their gradients and the optimizer are in the host's memory"},
    {"pin_memory", OPTION_BOOL, "true", 0, 0, NULL,
     "what cpu_offload keeps there is page-locked; FSDP1's always is"},
    {0},
};

const OptionSection fsdp_section = {"fsdp", options};
