/* program_scan.h - words and values of the Program's text form, with errors that name the line. */
#ifndef HIGHWATER_PROGRAM_PROGRAM_SCAN_H
#define HIGHWATER_PROGRAM_PROGRAM_SCAN_H

#include "program/program_schema.h"

/* A word of a line; borrowed from the text. */
typedef struct {
  const char *start;
  gsize length;
} Token;

/* A token as "%.*s" wants it, shortened for messages. */
#define TOKEN_ARGUMENTS(token) (int) MIN((token).length, 40), (token).start

typedef struct {
  const char *name; /* of the text, in messages */
  int line;
  const char *cursor; /* in the line */
  const char *end;    /* of the line */
  Program *program;
  OpList *list;   /* the last one, or NULL while tables are read */
  gboolean begun; /* the first line was read */
  gboolean ended; /* the steps were read */
  GError **error;
} Scanner;

/* Sets the error "NAME: line L: ..." and returns FALSE, as all functions below do where the text is
 * malformed. */
gboolean program_scan_fail(const Scanner *scanner, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* The next word of the line; empty at its end. */
Token program_scan_token(Scanner *scanner);
/* Whether only blanks are left; the cursor then stands at the end, else at the next word. */
gboolean program_scan_at_end(Scanner *scanner);
gboolean program_scan_end(Scanner *scanner);
gboolean program_token_is(Token token, const char *text);
/* A whole decimal number below 2^63; sets no error. */
gboolean program_token_integer(Token token, gint64 *value);

/* A value of that kind, in its range: a name, a number, or "-" for -1. */
gboolean program_scan_value(Scanner *scanner, ValueKind kind, Token token, gint64 *value);
/* The next word as such a value. */
gboolean program_scan_id(Scanner *scanner, ValueKind kind, gint32 *id);
gboolean program_scan_real(Scanner *scanner, Token token, double *value);
/* The id that opens a table's row: must be the next one due. */
gboolean program_scan_due_id(Scanner *scanner, const char *keyword, guint due);
/* "KEY=..." gives what follows the sign. */
gboolean program_scan_key(Scanner *scanner, const char *key, Token *value);
/* A text in quotes, added to texts. */
gboolean program_scan_text(Scanner *scanner, GPtrArray *texts);

#endif
