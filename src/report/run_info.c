/* run_info.c - keeps what reports need beside the Recording. */
#include "report/run_info.h"

static void
group_clear(gpointer data)
{
  GroupInfo *group = data;
  g_free(group->name);
  g_ptr_array_unref(group->modules);
}

static void
retained_clear(gpointer data)
{
  RetainedInfo *retained = data;
  g_free(retained->group);
  g_free(retained->held_by);
}

static void
phase_clear(gpointer data)
{
  g_free(((PhaseInfo *) data)->name);
  g_free(((PhaseInfo *) data)->source_bytes);
}

static void
communicator_clear(gpointer data)
{
  CommunicatorInfo *communicator = data;
  g_free(communicator->name);
  g_free(communicator->link);
}

static void
constant_clear(gpointer data)
{
  ConstantSource *constant = data;
  g_free(constant->name);
}

static GArray *
array_new(guint element_size, GDestroyNotify clear)
{
  GArray *array = g_array_new(FALSE, TRUE, element_size);
  g_array_set_clear_func(array, clear);
  return array;
}

RunInfo *
run_info_new(void)
{
  RunInfo *info = g_new0(RunInfo, 1);
  info->equivalent_zero_stage = -1;
  info->rank_without_room = -1;
  info->groups = array_new(sizeof(GroupInfo), group_clear);
  info->retained = array_new(sizeof(RetainedInfo), retained_clear);
  info->phases = array_new(sizeof(PhaseInfo), phase_clear);
  info->communicators = array_new(sizeof(CommunicatorInfo), communicator_clear);
  info->constants = array_new(sizeof(ConstantSource), constant_clear);
  info->warnings = g_ptr_array_new_with_free_func(g_free);
  return info;
}

void
run_info_free(RunInfo *info)
{
  if (info == NULL)
    return;
  char *const strings[] = {info->model, info->strategy, info->checkpointing, info->device,
                           info->cluster};
  for (guint i = 0; i < G_N_ELEMENTS(strings); i++)
    g_free(strings[i]);
  GArray *const arrays[] = {info->groups, info->retained, info->phases, info->communicators,
                            info->constants};
  for (guint i = 0; i < G_N_ELEMENTS(arrays); i++)
    g_array_unref(arrays[i]);
  g_ptr_array_unref(info->warnings);
  failure_free(info->failure);
  g_free(info);
}

GroupInfo *
run_info_add_group(RunInfo *info, const char *name, const char *const *modules)
{
  GroupInfo group = {.name = g_strdup(name), .modules = g_ptr_array_new_with_free_func(g_free)};
  for (; *modules != NULL; modules++)
    g_ptr_array_add(group.modules, g_strdup(*modules));
  g_array_append_val(info->groups, group);
  return &g_array_index(info->groups, GroupInfo, info->groups->len - 1);
}

void
run_info_add_retained(RunInfo *info, const char *group, const char *held_by, gint64 bytes)
{
  RetainedInfo retained = {g_strdup(group), g_strdup(held_by), bytes};
  g_array_append_val(info->retained, retained);
}

PhaseInfo *
run_info_add_phase(RunInfo *info, const char *name)
{
  PhaseInfo phase = {.name = g_strdup(name)};
  g_array_append_val(info->phases, phase);
  return &g_array_index(info->phases, PhaseInfo, info->phases->len - 1);
}

CommunicatorInfo *
run_info_add_communicator(RunInfo *info, const char *name, int ranks, const char *link)
{
  CommunicatorInfo communicator = {g_strdup(name), ranks, g_strdup(link), 0};
  g_array_append_val(info->communicators, communicator);
  return &g_array_index(info->communicators, CommunicatorInfo, info->communicators->len - 1);
}

void
run_info_add_constant(RunInfo *info, const char *name, ConstantOrigin origin)
{
  ConstantSource constant = {g_strdup(name), origin};
  g_array_append_val(info->constants, constant);
}

void
run_info_warn(RunInfo *info, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_ptr_array_add(info->warnings, g_strdup_vprintf(format, arguments));
  va_end(arguments);
}
