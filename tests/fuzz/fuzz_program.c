/* fuzz_program.c - any bytes as the text form of a Program; what parses is printed, parsed again,
 * checked and listed. */
#include "fuzz.h"
#include "program/program.h"

/* Printing what was printed gives the same text. */
static void
check_round_trip(const Program *program)
{
  g_autoptr(GString) first = g_string_new(NULL), second = g_string_new(NULL);
  g_autoptr(Program) again = NULL;

  program_print(program, first);
  again = program_parse("printed", first->str, NULL);
  g_assert(again != NULL);
  program_print(again, second);
  g_assert(g_string_equal(first, second));
}

static void
list_all(const Program *program)
{
  g_autoptr(GString) out = g_string_new(NULL);

  for (guint i = 0; i < program->lists->len; i++) {
    program_print_list(program, (int) i, out);
    program_print_allocations(program, g_ptr_array_index(program->lists, i), out);
  }
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  g_autofree char *text = size == 0 ? g_strdup("") : g_strndup((const char *) data, size);
  g_autoptr(GError) refusal = NULL, violation = NULL;
  g_autoptr(Program) program = program_parse("fuzz", text, &refusal);

  g_assert((program == NULL) == (refusal != NULL));
  if (program == NULL)
    return 0;
  check_round_trip(program);
  list_all(program);
  g_assert(program_check(program, &violation) == (violation == NULL));
  if (program->lists->len > 0)
    g_assert(program_check_agreement(program, program, NULL));
  return 0;
}
