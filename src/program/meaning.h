/* meaning.h - what a kernel computes, or how a collective reduces, where its name does not say all:
 * a formula and its numbers, as text: "adam lr=0.001 beta1=0.9".
 *
 * `global=1` marks the kernel whose result is the norm of all gradients.
 *
 * Time and memory do not depend on it; whoever executes a Program on numbers does (numeric/). */
#ifndef HIGHWATER_PROGRAM_MEANING_H
#define HIGHWATER_PROGRAM_MEANING_H

#include "program/program_builder.h"

/* A meaning of this formula with so many numbers, given as pairs of a key (const char *) and a
 * double; caller frees. */
char *meaning_text(const char *formula, int numbers, ...);
/* Appends one number more. */
void meaning_append(GString *text, const char *key, double value);

/* The Program's value for Kernel.meaning and Collective.meaning; 0 for NULL. */
gint32 meaning_of(ProgramBuilder *builder, const char *text);

/* What is computed: its formula, or the name of a kernel without a meaning; caller frees. */
char *meaning_formula(const Program *program, gint32 meaning, gint32 name);
/* A number of the meaning.  FALSE when it has none of this key. */
gboolean meaning_number(const Program *program, gint32 meaning, const char *key, double *value);

#endif
