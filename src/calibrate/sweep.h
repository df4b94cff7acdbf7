/* sweep.h - which experiments a calibration consists of. */
#ifndef HIGHWATER_CALIBRATE_SWEEP_H
#define HIGHWATER_CALIBRATE_SWEEP_H

#include "calibrate/device_probe.h"
#include "program/program.h"

/* The experiments for a device with these facts, and for what a program runs on it: its matrix
 * products, and collectives on groups as its communicators' that the job has ranks for.  program
 * may be NULL: products of a usual size, and one group of all ranks.  An array of Experiment; the
 * caller frees. */
GArray *sweep_experiments(const ProbeFacts *facts, const Program *program);

/* The groups of the program that the job is too small for, or that do not fill it evenly: an array
 * of RankGroup; the caller frees. */
GArray *sweep_groups_left_out(const ProbeFacts *facts, const Program *program);

#endif
