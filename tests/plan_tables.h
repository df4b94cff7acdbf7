/* plan_tables.h - a table of strategies to read plans against, for tests that must not depend on
 * the strategies there are: three with and one without a section, two of them sharing one. */
#ifndef HIGHWATER_TESTS_PLAN_TABLES_H
#define HIGHWATER_TESTS_PLAN_TABLES_H

#include "spec/plan_spec.h"

static const char *const test_places[] = {"root", "own", NULL};

static const OptionInfo test_fsdp_options[] = {
    {"blocks_per_group", OPTION_INT, "1", 0, 1 << 20, NULL, "blocks that share a group"},
    {"embedding", OPTION_ENUM, "\"root\"", 0, 0, test_places, "group of the embedding"},
    {"head", OPTION_ENUM, "\"root\"", 0, 0, test_places, "group of norm and head"},
    {"reshard_after_forward", OPTION_BOOL_OR_INT, "null", 1, 1 << 20, NULL, "when to reshard"},
    {"limit_all_gathers", OPTION_BOOL, "true", 0, 0, NULL, "rate limiter"},
    {0},
};
static const OptionInfo test_ddp_options[] = {
    {"bucket_cap_mb", OPTION_INT, "25", 1, 1 << 20, NULL, "MiB of a bucket"},
    {0},
};
static const OptionSection test_fsdp = {"fsdp", test_fsdp_options};
static const OptionSection test_ddp = {"ddp", test_ddp_options};

static const PlanStrategy test_strategies[] = {
    {"none", NULL}, {"ddp", &test_ddp}, {"fsdp1", &test_fsdp}, {"fsdp2", &test_fsdp}, {0},
};

#endif
