/* number_text.h - whole numbers as text, for files that are millions of them: printf is slow at
 * that. */
#ifndef HIGHWATER_BASE_NUMBER_TEXT_H
#define HIGHWATER_BASE_NUMBER_TEXT_H

#include <glib.h>

/* Bytes that number_text() may need. */
#define NUMBER_TEXT_SIZE 24

/* The decimal digits of the number at the end of the buffer, without a final zero byte; *length is
 * theirs. */
const char *number_text(char buffer[NUMBER_TEXT_SIZE], gint64 number, gsize *length);

/* Appends them. */
void number_text_append(GString *out, gint64 number);

#endif
