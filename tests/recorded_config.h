/* recorded_config.h - the network and the plan that a recorded run of the reference data is of. */
#ifndef HIGHWATER_TESTS_RECORDED_CONFIG_H
#define HIGHWATER_TESTS_RECORDED_CONFIG_H

#include <cjson/cJSON.h>
#include <glib.h>

/* The whole document, gzip or plain; fails the test when it cannot be read.  Free with
 * cJSON_Delete. */
cJSON *recorded_document(const char *path);

/* Our strategy for the recorded "parallel": "fsdp2", "ddp", "none" ... */
const char *recorded_strategy(const cJSON *config);
/* The network file and the plan file, as JSON.  Caller frees. */
char *recorded_network(const cJSON *config);
char *recorded_plan(const cJSON *config);

/* A value of the config; fails the test when it is of another kind. */
const char *recorded_text(const cJSON *config, const char *key);
int recorded_int(const cJSON *config, const char *key);
gboolean recorded_flag(const cJSON *config, const char *key);

#endif
