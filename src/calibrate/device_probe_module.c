/* device_probe_module.c - finds and loads the part that needs CUDA. */
#include <dlfcn.h>

#include "base/units.h"
#include "calibrate/device_probe.h"

/* Beside the program in a build tree, else where `make install` put it. */
static void *
open_module(GError **error)
{
  g_autofree char *program = g_file_read_link("/proc/self/exe", NULL);
  g_autofree char *folder = program != NULL ? g_path_get_dirname(program) : g_strdup(".");
  g_autofree char *beside = g_build_filename(folder, DEVICE_PROBE_FILE, NULL);
  g_autofree char *installed = g_build_filename(PKGLIBEXECDIR, DEVICE_PROBE_FILE, NULL);
  const char *path = g_file_test(beside, G_FILE_TEST_EXISTS) ? beside : installed;
  if (!g_file_test(path, G_FILE_TEST_EXISTS)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "measuring needs a build with --with-cuda (and --with-nccl for collectives): no "
                "%s; --from FILE fits measurements that you have",
                installed);
    return NULL;
  }
  void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (module == NULL)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s", dlerror());
  return module;
}

const DeviceProbeModule *
device_probe_module_load(GError **error)
{
  void *module = open_module(error);
  if (module == NULL)
    return NULL;
  const DeviceProbeModule *found = dlsym(module, DEVICE_PROBE_SYMBOL);
  if (found == NULL)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s", dlerror());
  return found;
}
