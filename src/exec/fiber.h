/* fiber.h - functions that can stop in the middle and go on later, one at a time, on stacks of
 * their own. */
#ifndef HIGHWATER_EXEC_FIBER_H
#define HIGHWATER_EXEC_FIBER_H

#include <glib.h>

typedef struct _Fiber Fiber;

/* Will run body(user) when it is first resumed. */
Fiber *fiber_new(void (*body)(gpointer user), gpointer user);
/* One that has not come to its end is dropped where it stands. */
void fiber_free(Fiber *fiber);

/* Runs it, or lets it go on, until it pauses or ends.  Not from inside a fiber. */
void fiber_resume(Fiber *fiber);
/* From inside: back to who resumed it. */
void fiber_pause(Fiber *fiber);

gboolean fiber_is_over(const Fiber *fiber);

#endif
