/* shared_link.c - transfers over a link and their max-min fair shares. */
#include "engine/engine_private.h"

#define NS_PER_S 1e9

SharedLink *
shared_link_new(Engine *engine, const char *name, double capacity, double flow_limit)
{
  SharedLink *link = g_new0(SharedLink, 1);

  g_assert(capacity > 0);
  link->engine = engine;
  link->name = g_strdup(name);
  link->capacity = capacity / NS_PER_S;
  link->flow_limit = (flow_limit > 0 ? MIN(flow_limit, capacity) : capacity) / NS_PER_S;
  g_ptr_array_add(engine->links, link);
  return link;
}

void
shared_link_free(SharedLink *link)
{
  g_free(link->name);
  g_free(link);
}

const char *
shared_link_name(const SharedLink *link)
{
  return link->name;
}

int
shared_link_flows(const SharedLink *link)
{
  return link->flows;
}

double
shared_link_bytes(const SharedLink *link)
{
  double bytes = link->finished_bytes;

  for (const Stream *stream = link->first; stream != NULL; stream = stream->link_next) {
    const Progress *progress = &stream->progress;
    SimTime elapsed = engine_time(link->engine) - progress->since;
    double left = progress->left - progress->speed * (double) elapsed;

    bytes += stream_work(stream)->link_bytes - MAX(left, 0);
  }
  return bytes;
}

void
shared_link_unsettle(SharedLink *link)
{
  if (link->unsettled)
    return;
  link->unsettled = TRUE;
  link->next_unsettled = link->engine->unsettled_links;
  link->engine->unsettled_links = link;
}

void
shared_link_add(SharedLink *link, Stream *stream)
{
  link->flows++;
  stream->link_next = NULL;
  stream->link_before = link->last;
  if (link->last != NULL)
    link->last->link_next = stream;
  else
    link->first = stream;
  link->last = stream;
  shared_link_unsettle(link);
}

void
shared_link_remove(SharedLink *link, Stream *stream)
{
  link->flows--;
  link->finished_bytes += stream_work(stream)->link_bytes;
  if (stream->link_before != NULL)
    stream->link_before->link_next = stream->link_next;
  else
    link->first = stream->link_next;
  if (stream->link_next != NULL)
    stream->link_next->link_before = stream->link_before;
  else
    link->last = stream->link_before;
  shared_link_unsettle(link);
}

/* Sets the shares.  Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2):
 * whoever can use no more than an equal share of what is left gets its limit; when nobody is left
 * to whom that applies, the rest is divided equally. */
static void
fill(SharedLink *link)
{
  double left = link->capacity;
  int open = link->flows;
  gboolean limited = TRUE;

  for (Stream *stream = link->first; stream != NULL; stream = stream->link_next)
    stream->share = 0;
  while (open > 0 && limited) {
    double equal = left / open;

    limited = FALSE;
    for (Stream *stream = link->first; stream != NULL; stream = stream->link_next) {
      double limit = link->flow_limit * stream->rate;

      if (stream->share > 0 || limit > equal)
        continue;
      stream->share = limit;
      left -= limit;
      open--;
      limited = TRUE;
    }
  }
  for (Stream *stream = link->first; stream != NULL; stream = stream->link_next) {
    if (stream->share == 0)
      stream->share = left / open;
  }
}

void
shared_link_settle(SharedLink *link)
{
  link->unsettled = FALSE;
  fill(link);
  for (Stream *stream = link->first; stream != NULL; stream = stream->link_next) {
    if (stream->share != stream->progress.speed)
      stream_set_speed(stream, stream->share);
  }
}
