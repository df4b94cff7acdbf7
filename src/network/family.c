/* family.c - finds the family of a model description. */
#include "network/family.h"

#include <string.h>

#include "base/units.h"
#include "network/registry.h"

const NetworkFamily *const *
network_families(void)
{
  static const NetworkFamily *const families[] = {
#define X(name) &family_##name,
      FAMILY_LIST(X)
#undef X
          NULL,
  };
  return families;
}

const NetworkFamily *
network_family_find(const NetworkSpec *spec, GError **error)
{
  g_autoptr(GString) known = g_string_new(NULL);
  for (const NetworkFamily *const *family = network_families(); *family != NULL; family++) {
    for (const char *const *type = (*family)->model_types; *type != NULL; type++) {
      if (strcmp(*type, spec->family) == 0)
        return *family;
      g_string_append_printf(known, "%s%s", known->len > 0 ? ", " : "", *type);
    }
  }
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "%s: key 'model_type': '%.60s' is not one of %s", json_document_name(spec->document),
              spec->family, known->str);
  return NULL;
}

/* Whether backward() has anywhere to go from the loss.  What a plan freezes is its own question
 * (lower). */
static gboolean
loss_has_gradient(const Network *network)
{
  const Function *f = network_function(network, network->main);
  return f->result >= 0 && g_array_index(f->values, ValueInfo, f->result).requires_grad;
}

Network *
network_build(NetworkSpec *spec, const NetworkShape *shape, GError **error)
{
  const NetworkFamily *family = network_family_find(spec, error);
  if (family == NULL)
    return NULL;
  Network *network = family->build(spec, shape, error);
  gboolean all_train = shape->trainable == NULL && shape->lora == NULL && !shape->evaluation;
  if (network != NULL && all_train && !loss_has_gradient(network)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
                "%s: key 'main': the loss depends on no parameter that trains",
                json_document_name(spec->document));
    network_free(network);
    return NULL;
  }
  if (network != NULL)
    network->family = family->name;
  else if (json_document_error(spec->document) == NULL) /* the builder's: it knows no files */
    g_prefix_error(error, "%s: ", json_document_name(spec->document));
  return network;
}
