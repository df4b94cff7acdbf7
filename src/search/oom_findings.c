/* oom_findings.c - what a message about memory running out tells of the reason: one function each.
 */
#include "search/oom_findings.h"

#include "base/units.h"

/* What nobody lists is worth a word above this. */
#define NOTEWORTHY (256 * MIB)

/* What is being looked at. */
typedef struct {
  const OomMessage *message;
  const OomSearch *search;
} Case;

static gint64
middle(const OomFigure *figure)
{
  return figure->known ? oom_figure_bytes(figure) : 0;
}

static gint64
used_by_others(const OomMessage *m)
{
  gint64 sum = 0;
  for (guint i = 0; i < m->processes->len; i++)
    sum += middle(&g_array_index(m->processes, OomProcess, i).used);
  return sum;
}

/* "%s" for each size, in order.  Caller frees. */
static char *
say(const char *format, const gint64 *bytes, guint count)
{
  GString *text = g_string_new(NULL);
  guint next = 0;
  for (const char *at = format; *at != '\0'; at++) {
    if (at[0] != '%' || at[1] != 's') {
      g_string_append_c(text, *at);
      continue;
    }
    g_assert(next < count);
    g_autofree char *size = format_bytes(bytes[next++]);
    g_string_append(text, size);
    at++;
  }
  return g_string_free(text, FALSE);
}
#define SAY(format, ...)                                                                           \
  say(format, (const gint64[]){__VA_ARGS__}, G_N_ELEMENTS(((const gint64[]){__VA_ARGS__})))

static char *
process_limit(const Case *c)
{
  const OomMessage *m = c->message;
  if (!m->allowed.known || !m->capacity.known || m->allowed.low >= m->capacity.high)
    return NULL;
  return SAY("This process may have %s of the device's %s (set_per_process_memory_fraction), of "
             "which %s are free",
             middle(&m->allowed), middle(&m->capacity), middle(&m->free));
}

static gboolean
is_fragmented(const OomMessage *m)
{
  return m->idle.known && m->idle.high >= m->tried.low;
}

static char *
fragmented(const Case *c)
{
  const OomMessage *m = c->message;
  if (!is_fragmented(m))
    return NULL;
  return SAY("Fragmented: %s are reserved and not allocated, more than the %s that were asked for, "
             "but in pieces of segments that are in use; allocator.expandable_segments "
             "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True) makes them one",
             middle(&m->idle), middle(&m->tried));
}

static char *
other_processes(const Case *c)
{
  const OomMessage *m = c->message;
  gint64 others = used_by_others(m);
  if (others == 0)
    return NULL;
  gboolean would_do = others + middle(&m->free) >= middle(&m->tried);
  return SAY(would_do ? "Other processes have %s of this GPU: without them there would be room"
                      : "Other processes have %s of this GPU",
             others);
}

static char *
unlisted(const Case *c)
{
  const OomMessage *m = c->message;
  if (!m->capacity.known || !m->free.known || !(m->this_process.known || m->reserved.known))
    return NULL;
  gint64 known = m->this_process.known ? middle(&m->this_process) : middle(&m->reserved);
  gint64 rest = middle(&m->capacity) - middle(&m->free) - known - used_by_others(m);
  if (rest < NOTEWORTHY)
    return NULL;
  if (m->this_process.known)
    return SAY("%s of the GPU are in use by nobody whom the message names", rest);
  return SAY("%s of the GPU are in use outside of PyTorch's allocator: CUDA's context, NCCL, other "
             "processes",
             rest);
}

static char *
outside_pytorch(const Case *c)
{
  const OomMessage *m = c->message;
  if (!m->this_process.known || !m->reserved.known)
    return NULL;
  gint64 outside = middle(&m->this_process) - middle(&m->reserved);
  gint64 simulated = c->search->run.recording->outside_allocator_bytes;
  if (outside <= 0)
    return NULL;
  return SAY(outside > simulated + NOTEWORTHY
                 ? "This process has %s outside of PyTorch's allocator, more than the %s of CUDA's "
                   "context and NCCL that are simulated"
                 : "This process has %s outside of PyTorch's allocator (CUDA's context, NCCL; "
                   "simulated: %s)",
             outside, simulated);
}

static char *
private_pools(const Case *c)
{
  const OomMessage *m = c->message;
  if (!m->private_pools.known || m->private_pools.low <= 0)
    return NULL;
  return SAY("%s are in private pools, as of CUDA graphs, which are not simulated",
             middle(&m->private_pools));
}

/* Not one of the reasons before. */
static char *
near_limit(const Case *c)
{
  const OomMessage *m = c->message;
  if (!m->allocated.known || !m->capacity.known || is_fragmented(m))
    return NULL;
  gint64 there =
      middle(m->allowed.known && m->allowed.low < m->capacity.low ? &m->allowed : &m->capacity);
  return SAY("Near the limit: tensors have %s of %s, so that less must be alive at once",
             middle(&m->allocated), there);
}

static char *
simulation_at_limit(const Case *c)
{
  const OomSearch *search = c->search;
  if (!search->simulated_limit)
    return NULL;
  if (search->fits)
    return SAY("Simulated with the %s that the message leaves the allocator, the plan fits",
               middle(&search->limit));
  if (search->runs_out == NULL)
    return NULL;
  g_autofree char *limit = format_bytes(middle(&search->limit));
  return g_strdup_printf("Simulated with the %s that the message leaves the allocator, memory runs "
                         "out in %s",
                         limit, search->runs_out);
}

static char *
simulation_differs(const Case *c)
{
  const OomMessage *m = c->message;
  if (c->search->candidates->len == 0 || !m->allocated.known)
    return NULL;
  const OomCandidate *best = &g_array_index(c->search->candidates, OomCandidate, 0);
  if (best->distance < NOTEWORTHY)
    return NULL;
  return SAY(
      best->allocated < middle(&m->allocated)
          ? "At the likeliest allocation the simulation has %s, the message %s: something is "
            "alive that the plan does not say"
          : "At the likeliest allocation the simulation has %s, the message %s",
      best->allocated, middle(&m->allocated));
}

static void
finding_clear(gpointer data)
{
  g_free(((OomFinding *) data)->text);
}

GArray *
oom_findings(const OomMessage *message, const OomSearch *search)
{
  static const struct {
    const char *name;
    char *(*find)(const Case *c);
  } all[] = {
      {"process_limit", process_limit},
      {"fragmented", fragmented},
      {"other_processes", other_processes},
      {"near_limit", near_limit},
      {"private_pools", private_pools},
      {"outside_pytorch", outside_pytorch},
      {"unlisted", unlisted},
      {"simulation_at_limit", simulation_at_limit},
      {"simulation_differs", simulation_differs},
  };
  const Case c = {message, search};
  GArray *findings = g_array_new(FALSE, FALSE, sizeof(OomFinding));
  g_array_set_clear_func(findings, finding_clear);
  for (guint i = 0; i < G_N_ELEMENTS(all); i++) {
    OomFinding finding = {all[i].name, all[i].find(&c)};
    if (finding.text != NULL)
      g_array_append_val(findings, finding);
  }
  return findings;
}
