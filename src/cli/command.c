/* command.c - options of subcommands, read with GOption; help from the command's table entry. */
#include "cli/command.h"
#include "base/units.h"
#include <string.h>

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
  if (entries)
    g_option_context_add_main_entries(context, entries, NULL);
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
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
              "%s: too %s arguments; usage: highwater %s %s", command->name,
              count < min ? "few" : "many", command->name, command->arguments);
  return FALSE;
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
