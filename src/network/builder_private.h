/* builder_private.h - the builder's state, and what its files share. */
#ifndef HIGHWATER_NETWORK_BUILDER_PRIVATE_H
#define HIGHWATER_NETWORK_BUILDER_PRIVATE_H

#include "network/builder.h"

/* A function while it is written. */
typedef struct {
  Function *function;
  GPtrArray *frames;               /* Frame * */
  GArray *references;              /* gint32 by slot: Python references */
  int base_module, base_parameter; /* of the block that the function is written for */
  int module;                      /* on whose behalf, absolute */
  Val beside;                      /* what the last block called gave back beside its result */
  gboolean dispatched;             /* NetworkShape.dispatched */
} Writing;

/* A block's function, and what it was written for. */
typedef struct {
  int function, block, kind;
  gboolean dispatched;
} WrittenBlock;

struct _Builder {
  Network *network;
  GArray *open_modules;      /* int */
  GHashTable *paths;         /* of all modules, borrowed: a Program knows modules by them */
  Writing now;               /* the function being written */
  GArray *outer;             /* Writing: those that wait for it */
  GArray *written;           /* WrittenBlock */
  gboolean adapter;          /* parameters are an adapter's */
  gint64 parameter_elements; /* so far */
  GError *error;
};

/* A new zeroed array of elements of that size, each cleared by clear (may be NULL). */
GArray *builder_array(gsize size, GDestroyNotify clear);

/* A new value of the function being written, held by one reference.  A value that cannot exist is
 * an error of the builder. */
gint16 builder_new_slot(Builder *b, const ValueInfo *info);
/* How deep what the innermost frame holds lies: as a temporary or under a name. */
guint8 builder_depth(const Builder *b, gboolean temporary);
/* It is held there (too): who holds it furthest out lets it go last. */
void builder_held_at(Builder *b, gint16 slot, guint8 depth);
void builder_add_statement(Builder *b, const Statement *statement);
/* One more reference to a value, and one less: the last one drops it.  Parameters have none. */
void builder_reference(Builder *b, gint16 slot);
void builder_unreference(Builder *b, gint16 slot);
/* What a slot holds, a parameter's included. */
ValueInfo builder_info_of(const Builder *b, gint16 slot);
/* The value, or after an error one that can exist.  what: who makes it, for the message. */
ValueInfo builder_checked_value(Builder *b, const char *what, const ValueInfo *info);

/* Will block i's function run under a Python dispatch mode? */
gboolean builder_dispatches(const Builder *b, int block);

#endif
