/* cuda_collective_none.c - the CUDA probe without NCCL: one GPU's figures and no collectives. */
#include "calibrate/cuda_gpu.h"

static gboolean
refuse(GError **error)
{
  g_set_error(error, HIGHWATER_ERROR_CUDA, 0, "collectives need a build with --with-nccl");
  return FALSE;
}

gboolean
cuda_collective_make_id(char id[DEVICE_PROBE_ID_BYTES] G_GNUC_UNUSED, GError **error)
{
  return refuse(error);
}

gboolean
cuda_collective_connect(const CudaCollective *all G_GNUC_UNUSED, const char *id G_GNUC_UNUSED,
                        GError **error)
{
  return refuse(error);
}

gboolean
cuda_collective_run(const CudaCollective *all G_GNUC_UNUSED,
                    const CollectiveCall *call G_GNUC_UNUSED, GError **error)
{
  return refuse(error);
}

gboolean
cuda_collective_largest(const CudaCollective *all G_GNUC_UNUSED, int *value G_GNUC_UNUSED,
                        GError **error G_GNUC_UNUSED)
{
  return TRUE;
}

void
cuda_collective_close(CudaGpu *gpu G_GNUC_UNUSED)
{
}

void
cuda_collective_version(char text[PROBE_TEXT] G_GNUC_UNUSED)
{
}
