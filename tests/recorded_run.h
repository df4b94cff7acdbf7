/* recorded_run.h - a recorded run of the reference data's folder extra, simulated and compared. */
#ifndef HIGHWATER_TESTS_RECORDED_RUN_H
#define HIGHWATER_TESTS_RECORDED_RUN_H

#include "recorded_config.h"
#include "simulation.h"

/* Simulates the run of that name under plan(config), which is freed, on a device of the recorded
 * size; the peaks of each step, and what is left after it, must be the recorded ones to the byte.
 * *run is the document (free with cJSON_Delete).  NULL, and a note, when the reference data is not
 * here. */
Simulated *recorded_run_compare(const char *name, char *(*plan)(const cJSON *config), cJSON **run);

/* A number of an object of the document. */
gint64 recorded_number(const cJSON *object, const char *key);

#endif
