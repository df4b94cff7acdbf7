/* chrome_event.h - one event of a trace in Chrome's JSON format after another.
 *
 * An event is begun, gets its times and arguments, and is ended:
 *
 *   chrome_event_begin(out, "X", "kernel", "mm", DEVICE, 7);
 *   chrome_event_interval(out, start, end);
 *   chrome_event_number(out, "stream", 7);
 *   chrome_event_end(out);
 *
 * Times are nanoseconds here and microseconds there. */
#ifndef HIGHWATER_REPORT_CHROME_EVENT_H
#define HIGHWATER_REPORT_CHROME_EVENT_H

#include <glib.h>

#include "base/units.h"

typedef struct {
  GString *text;      /* borrowed */
  gboolean follows;   /* an event stands before */
  gboolean arguments; /* "args" of this one are open */
} ChromeEvents;

/* type: "X" an interval, "i" an instant, "C" a counter, "s" and "f" ends of a flow, "M" a name.
 * category may be NULL. */
void chrome_event_begin(ChromeEvents *out, const char *type, const char *category, const char *name,
                        int process, int thread);
void chrome_event_time(ChromeEvents *out, SimTime time);
void chrome_event_interval(ChromeEvents *out, SimTime start, SimTime end);
/* A member of the event itself that is a whole number or a text, before its arguments. */
void chrome_event_id(ChromeEvents *out, gint64 id);
void chrome_event_member(ChromeEvents *out, const char *key, const char *text);
void chrome_event_end(ChromeEvents *out);

/* Arguments. */
void chrome_event_number(ChromeEvents *out, const char *key, gint64 number);
void chrome_event_text(ChromeEvents *out, const char *key, const char *text);
/* Microseconds. */
void chrome_event_us(ChromeEvents *out, const char *key, SimTime time);

/* A flow between two slices, each bound by a moment in it. */
typedef struct {
  int process, thread;
  SimTime time;
} ChromeEnd;
void chrome_event_flow(ChromeEvents *out, const char *kind, gint64 id, ChromeEnd from,
                       ChromeEnd to);

/* A text in quotes. */
void chrome_event_quote(GString *text, const char *value);

#endif
