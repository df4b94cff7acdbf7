/* command.c - options of subcommands, read with GOption; help from the command's table entry. */
#include "cli/command.h"
#include "base/units.h"
#include <string.h>

/* GOption takes what is not of the locale's encoding for file names only; module names and messages
 * are UTF-8 wherever they come from.  Caller frees. */
static GOptionEntry *
take_bytes(const GOptionEntry *entries)
{
  guint n = 0;
  while (entries[n].long_name)
    n++;
  GOptionEntry *copy = g_memdup2(entries, (n + 1) * sizeof *entries);
  for (GOptionEntry *entry = copy; entry->long_name; entry++)
    entry->arg = entry->arg == G_OPTION_ARG_STRING         ? G_OPTION_ARG_FILENAME
                 : entry->arg == G_OPTION_ARG_STRING_ARRAY ? G_OPTION_ARG_FILENAME_ARRAY
                                                           : entry->arg;
  return copy;
}

gboolean
command_refuse(const Command *command, GError **error, const char *format, ...)
{
  va_list values;
  va_start(values, format);
  g_autofree char *text = g_strdup_vprintf(format, values);
  va_end(values);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "%s: %s", command->name, text);
  return FALSE;
}

static GOptionContext *
context_new(const Command *command, const GOptionEntry *entries, gboolean *help)
{
  const GOptionEntry own[] = {
      {"help", 'h', 0, G_OPTION_ARG_NONE, help, "Show this help", NULL},
      {0},
  };
  /* GOption's own --help would end the program inside the library. */
  GOptionContext *context = g_option_context_new(NULL);
  g_option_context_set_help_enabled(context, FALSE);
  if (entries) {
    g_autofree GOptionEntry *taken = take_bytes(entries);
    g_option_context_add_main_entries(context, taken, NULL);
  }
  g_option_context_add_main_entries(context, own, NULL);
  g_option_context_set_summary(context, command->summary);
  return context;
}

/* GOption's help with our own usage line in place of its first two. */
static void
print_help(const Command *command, GOptionContext *context)
{
  g_autofree char *text = g_option_context_get_help(context, TRUE, NULL);
  const char *rest = strstr(text, "\n\n");
  g_print("Usage: highwater %s %s%s", command->name, command->arguments, rest ? rest : "\n");
}

static gboolean
check_count(const Command *command, int count, int min, int max, GError **error)
{
  if (count >= min && (max < 0 || count <= max))
    return TRUE;
  return command_refuse(command, error, "too %s arguments; usage: highwater %s %s",
                        count < min ? "few" : "many", command->name, command->arguments);
}

static gboolean
is_decimal(const char *text)
{
  text += *text == '-';
  gsize digits = strspn(text, "0123456789");
  return digits > 0 && text[digits] == '\0' && !(text[0] == '0' && digits > 1);
}

/* The value of the option at argv[i], or NULL: "--steps=3", or "--steps" "3". */
static const char *
value_of(char **argv, int i, const char *name)
{
  gsize length = strlen(name);
  if (!g_str_has_prefix(argv[i], "--") || strncmp(argv[i] + 2, name, length) != 0)
    return NULL;
  const char *end = argv[i] + 2 + length;
  return *end == '=' ? end + 1 : *end == '\0' ? argv[i + 1] : NULL;
}

/* GOption takes 0x10 and 010, hexadecimal and octal, for numbers. */
static gboolean
check_numbers(const Command *command, char **argv, const GOptionEntry *entries, GError **error)
{
  for (; entries && entries->long_name; entries++)
    for (int i = 1; argv[i] && !g_str_equal(argv[i], "--"); i++) {
      const char *value = value_of(argv, i, entries->long_name);
      if ((entries->arg != G_OPTION_ARG_INT && entries->arg != G_OPTION_ARG_INT64) || !value ||
          is_decimal(value))
        continue;
      g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                  "%s: --%s: '%.60s' is not a decimal number (see highwater %s --help)",
                  command->name, entries->long_name, value, command->name);
      return FALSE;
    }
  return TRUE;
}

gboolean
command_parse(const Command *command, int argc, char **argv, const GOptionEntry *entries, int min,
              int max, char ***positionals, GError **error)
{
  gboolean help = FALSE;
  g_autoptr(GOptionContext) context = context_new(command, entries, &help);
  g_auto(GStrv) rest = g_new0(char *, argc + 1);
  for (int i = 0; i < argc; i++)
    rest[i] = g_strdup(argv[i]);

  if (!check_numbers(command, rest, entries, error))
    return FALSE;
  g_autoptr(GError) wrong = NULL;
  gboolean ok = g_option_context_parse_strv(context, &rest, &wrong);
  if (help) {
    print_help(command, context);
    return FALSE;
  }
  if (!ok) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE, "%s: %s (see highwater %s --help)",
                command->name, wrong->message, command->name);
    return FALSE;
  }

  GPtrArray *found = g_ptr_array_new();
  gboolean after_dashes = FALSE;
  for (int i = 1; rest[i]; i++) {
    if (!after_dashes && g_str_equal(rest[i], "--"))
      after_dashes = TRUE;
    else
      g_ptr_array_add(found, g_strdup(rest[i]));
  }
  int count = (int) found->len;
  g_ptr_array_add(found, NULL);
  g_auto(GStrv) result = (char **) g_ptr_array_free(found, FALSE);
  if (!check_count(command, count, min, max, error))
    return FALSE;
  *positionals = g_steal_pointer(&result);
  return TRUE;
}
