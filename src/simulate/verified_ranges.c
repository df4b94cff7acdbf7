/* verified_ranges.c - which elements of which parameters lie in the memory of a rank. */
#include "simulate/verified_ranges.h"

guint
verified_parameters(const VerifiedState *s)
{
  return s->scenario->network->parameters->len;
}

int
verified_parameter_named(const VerifiedState *s, const char *name)
{
  return GPOINTER_TO_INT(g_hash_table_lookup(s->parameters, name)) - 1;
}

static const GArray *
ranges_of(const VerifiedState *s, int rank)
{
  return g_ptr_array_index(s->layout->held, (guint) (rank % s->layout->ranks));
}

StateRange
verified_range(const VerifiedState *s, int rank, int parameter, gint64 elements)
{
  const Parameter *p = network_parameter(s->scenario->network, parameter);
  const GArray *held = ranges_of(s, rank);
  if (elements >= p->elements && s->layout->ranks == 1)
    return (StateRange){parameter, 0, p->elements};
  for (guint i = 0; i < held->len; i++)
    if (g_array_index(held, StateRange, i).parameter == parameter)
      return g_array_index(held, StateRange, i);
  return (StateRange){parameter, 0, 0};
}

/* How much room a parameter has in memory where all ranks' parts are as large as the largest. */
static gint64
room_of(const VerifiedState *s, int parameter)
{
  gint64 room = 0;
  for (int rank = 0; rank < s->layout->ranks; rank++)
    room = MAX(room, verified_range(s, rank, parameter, 0).elements);
  return room;
}

void
verified_for_ranges(const VerifiedState *s, RangeWindow w, RangeFunction f, gpointer user)
{
  const GArray *held = ranges_of(s, w.rank);
  gint64 rooms = 0, at = -w.first;
  for (guint i = 0; i < verified_parameters(s); i++)
    rooms += room_of(s, (int) i);
  gboolean padded = rooms == w.elements ||
                    state_layout_elements(s->layout, w.rank % s->layout->ranks) > w.elements ||
                    w.first > 0;
  for (guint i = 0, next = 0; i < (padded ? verified_parameters(s) : held->len); i++) {
    StateRange range = {(gint32) i, 0, 0};
    if (!padded)
      range = g_array_index(held, StateRange, i);
    else if (next < held->len && g_array_index(held, StateRange, next).parameter == (gint32) i)
      range = g_array_index(held, StateRange, next++);
    if (at >= 0 && at < w.elements)
      f(user, range, at);
    at += padded ? room_of(s, (int) i) : range.elements;
  }
}

gboolean
verified_for_update(const VerifiedState *s, const NumericUpdate *u, gint64 *seen, RangeFunction f,
                    gpointer user)
{
  int parameter = verified_parameter_named(s, u->name);
  if (parameter < 0 && u->state_name != NULL)
    parameter = verified_parameter_named(s, u->state_name);
  if (parameter >= 0) {
    StateRange range = verified_range(s, u->rank, parameter, u->elements);
    if (u->elements < range.elements)
      return FALSE;
    f(user, range, 0);
    return TRUE;
  }
  /* buffers of many come one after the other */
  verified_for_ranges(s, (RangeWindow){u->rank, *seen, u->elements}, f, user);
  *seen += u->elements;
  return TRUE;
}
