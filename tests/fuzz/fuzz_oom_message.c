/* fuzz_oom_message.c - any bytes as a message about memory running out. */
#include "fuzz.h"
#include "import/oom_message.h"

static void
check_figure(const OomFigure *figure)
{
  g_assert(!figure->known || (figure->low >= 0 && figure->low <= figure->high));
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(OomMessage) m = oom_message_parse((const char *) data, size, &error);
  g_assert((m == NULL) == (error != NULL));
  if (m == NULL)
    return 0;
  const OomFigure *figures[] = {&m->tried,   &m->capacity,  &m->free,
                                &m->allowed, &m->allocated, &m->this_process,
                                &m->idle,    &m->reserved,  &m->private_pools};
  g_assert(m->tried.known);
  for (guint i = 0; i < G_N_ELEMENTS(figures); i++)
    check_figure(figures[i]);
  for (guint i = 0; i < m->processes->len; i++)
    check_figure(&g_array_index(m->processes, OomProcess, i).used);
  return 0;
}
