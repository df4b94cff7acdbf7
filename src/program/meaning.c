/* meaning.c - what a kernel computes, as text that equal kernels share. */
#include "program/meaning.h"

#include <stdarg.h>
#include <string.h>

void
meaning_append(GString *text, const char *key, double value)
{
  static const char *const formats[] = {"%.15g", "%.16g", "%.17g"};
  char digits[G_ASCII_DTOSTR_BUF_SIZE];
  for (guint i = 0; i < G_N_ELEMENTS(formats); i++) {
    g_ascii_formatd(digits, sizeof digits, formats[i], value);
    if (g_ascii_strtod(digits, NULL) == value)
      break;
  }
  g_string_append_printf(text, " %s=%s", key, digits);
}

char *
meaning_text(const char *formula, int numbers, ...)
{
  GString *text = g_string_new(formula);
  va_list pairs;
  va_start(pairs, numbers);
  for (int i = 0; i < numbers; i++) {
    const char *key = va_arg(pairs, const char *);
    meaning_append(text, key, va_arg(pairs, double));
  }
  va_end(pairs);
  return g_string_free(text, FALSE);
}

gint32
meaning_of(ProgramBuilder *builder, const char *text)
{
  return text != NULL ? program_builder_name(builder, text) + 1 : 0;
}

char *
meaning_formula(const Program *program, gint32 meaning, gint32 name)
{
  const char *text = program_text(program, meaning > 0 ? meaning - 1 : name);
  return g_strndup(text, meaning > 0 ? strcspn(text, " ") : strlen(text));
}

gboolean
meaning_number(const Program *program, gint32 meaning, const char *key, double *value)
{
  const char *text = meaning > 0 ? program_text(program, meaning - 1) : "";
  gsize length = strlen(key);
  for (const char *word = strchr(text, ' '); word != NULL; word = strchr(word, ' ')) {
    word++;
    if (strncmp(word, key, length) != 0 || word[length] != '=')
      continue;
    *value = g_ascii_strtod(word + length + 1, NULL);
    return TRUE;
  }
  return FALSE;
}
