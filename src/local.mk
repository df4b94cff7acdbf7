# src/local.mk - the program.  Everything but main.c is in libhighwater.a, which the tests link too.

noinst_LIBRARIES += libhighwater.a
bin_PROGRAMS += highwater
highwater_SOURCES = src/cli/main.c
PROGRAM_LIBS = $(GLIB_LIBS) $(CJSON_LIBS) $(ZLIB_LIBS) $(YAML_LIBS) $(TOML_LIBS) -lstdc++ -lm
highwater_LDADD = libhighwater.a $(PROGRAM_LIBS)

# ---- Registries: a file named in one of these lists is compiled and registered.
# src/strategy/NAME.c defines `const Strategy strategy_NAME`, src/network/family_NAME.c
# `const NetworkFamily family_NAME`, src/cli/cmd_NAME.c `const Command command_NAME`.
# The order is that of `highwater list` and `highwater --help`.

STRATEGIES = \
  src/strategy/none.c \
  src/strategy/ddp.c \
  src/strategy/zero0.c \
  src/strategy/zero1.c \
  src/strategy/zero2.c \
  src/strategy/zero3.c \
  src/strategy/fsdp1.c \
  src/strategy/fsdp2.c \
  src/strategy/internevo.c

FAMILIES = \
  src/network/family_llama.c \
  src/network/family_qwen3.c \
  src/network/family_phi3.c \
  src/network/family_gemma.c \
  src/network/family_gemma2.c \
  src/network/family_gemma3.c \
  src/network/family_granite.c \
  src/network/family_glm.c \
  src/network/family_cohere.c \
  src/network/family_olmo.c \
  src/network/family_olmo2.c \
  src/network/family_starcoder2.c \
  src/network/family_stablelm.c \
  src/network/family_smollm3.c \
  src/network/family_internlm2.c \
  src/network/family_gpt2.c \
  src/network/family_deepseek.c \
  src/network/family_gpt_oss.c \
  src/network/family_granitemoe.c \
  src/network/family_mixtral.c \
  src/network/family_gpt_neox.c \
  src/network/family_bloom.c \
  src/network/family_falcon.c \
  src/network/family_gpt_bigcode.c \
  src/network/family_gpt_neo.c \
  src/network/family_gptj.c \
  src/network/family_opt.c \
  src/network/family_phi.c \
  src/network/family_mpt.c \
  src/network/family_bart.c \
  src/network/family_bert.c \
  src/network/family_vit.c \
  src/network/family_clip.c \
  src/network/family_t5.c \
  src/network/family_whisper.c \
  src/network/family_olmoe.c \
  src/network/family_qwen2_moe.c \
  src/network/family_qwen3_moe.c \
  src/network/family_blocks.c \
  src/network/family_ops.c

COMMANDS = \
  src/cli/cmd_run.c \
  src/cli/cmd_verify.c \
  src/cli/cmd_show.c \
  src/cli/cmd_lower.c \
  src/cli/cmd_estimate.c \
  src/cli/cmd_explain.c \
  src/cli/cmd_list.c \
  src/cli/cmd_report.c \
  src/cli/cmd_compare.c \
  src/cli/cmd_plot.c \
  src/cli/cmd_import.c \
  src/cli/cmd_export.c \
  src/cli/cmd_replay.c \
  src/cli/cmd_plan.c \
  src/cli/cmd_sweep.c \
  src/cli/cmd_calibrate.c

MAKE_REGISTRY = $(AM_V_GEN)$(MKDIR_P) $(@D) && $(SHELL) $(top_srcdir)/src/make-registry.sh
EXTRA_DIST += src/make-registry.sh
REGISTRIES = src/strategy/registry.h src/network/registry.h src/cli/registry.h
BUILT_SOURCES += $(REGISTRIES)
CLEANFILES += $(REGISTRIES)

# make-registry.sh OUTPUT HEADER TYPE SYMBOL-PREFIX FILE-PREFIX SOURCES
src/strategy/registry.h: $(top_srcdir)/src/local.mk $(top_srcdir)/src/make-registry.sh
	$(MAKE_REGISTRY) $@ strategy/strategy.h Strategy strategy "" $(STRATEGIES)
src/network/registry.h: $(top_srcdir)/src/local.mk $(top_srcdir)/src/make-registry.sh
	$(MAKE_REGISTRY) $@ network/family.h NetworkFamily family family_ $(FAMILIES)
src/cli/registry.h: $(top_srcdir)/src/local.mk $(top_srcdir)/src/make-registry.sh
	$(MAKE_REGISTRY) $@ cli/command.h Command command cmd_ $(COMMANDS)

# ---- Sources by module, lowest layer first
nodist_libhighwater_a_SOURCES = $(REGISTRIES)
libhighwater_a_SOURCES = $(STRATEGIES) $(FAMILIES) $(COMMANDS)

# base
libhighwater_a_SOURCES += \
  src/base/category.c src/base/category.h \
  src/base/json_document.c src/base/json_document.h \
  src/base/json_output.c src/base/json_output.h \
  src/base/json_reader.c src/base/json_reader.h \
  src/base/json_scan.c src/base/json_scan.h \
  src/base/nearest_name.c src/base/nearest_name.h \
  src/base/number_text.c src/base/number_text.h \
  src/base/output_file.c src/base/output_file.h \
  src/base/pickle_writer.c src/base/pickle_writer.h \
  src/base/sorted_times.c src/base/sorted_times.h \
  src/base/text_table.c src/base/text_table.h \
  src/base/units.c src/base/units.h

# engine
libhighwater_a_SOURCES += \
  src/engine/engine.c src/engine/engine.h \
  src/engine/engine_private.h \
  src/engine/event_queue.c src/engine/event_queue.h \
  src/engine/item_queue.c src/engine/item_queue.h \
  src/engine/pool.c src/engine/pool.h \
  src/engine/rate_group.c src/engine/rate_group.h \
  src/engine/rendezvous.c src/engine/rendezvous.h \
  src/engine/shared_link.c src/engine/shared_link.h \
  src/engine/stream.c src/engine/stream.h \
  src/engine/stuck_report.c \
  src/engine/sync_point.c src/engine/sync_point.h

# spec
libhighwater_a_SOURCES += \
  src/spec/checkpoint_spec.c src/spec/checkpoint_spec.h \
  src/spec/cluster_spec.c src/spec/cluster_spec.h \
  src/spec/collective_table.c src/spec/collective_table.h \
  src/spec/device_profile.c src/spec/device_profile.h \
  src/spec/dtype.c src/spec/dtype.h \
  src/spec/fabric.c src/spec/fabric.h \
  src/spec/failure_spec.c src/spec/failure_spec.h \
  src/spec/fused_attention.c src/spec/fused_attention.h \
  src/spec/lora_spec.c src/spec/lora_spec.h \
  src/spec/name_patterns.c src/spec/name_patterns.h \
  src/spec/network_spec.c src/spec/network_spec.h \
  src/spec/option.c src/spec/option.h \
  src/spec/phase_spec.c src/spec/phase_spec.h \
  src/spec/plan_spec.c src/spec/plan_spec.h \
  src/spec/preset.c src/spec/preset.h \
  src/spec/profile_fields.c src/spec/profile_fields.h \
  src/spec/protocol_line.c src/spec/protocol_line.h

# record
libhighwater_a_SOURCES += \
  src/record/recorder.c src/record/recorder.h \
  src/record/recording.c src/record/recording.h \
  src/record/recording_check.c \
  src/record/recording_columns.c src/record/recording_columns.h \
  src/record/recording_load.c \
  src/record/recording_save.c \
  src/record/snapshot_names.h

# memory
libhighwater_a_SOURCES += \
  src/memory/address_space.c src/memory/address_space.h \
  src/memory/allocator_check.c \
  src/memory/allocator_events.c \
  src/memory/allocator_internal.h \
  src/memory/allocator_options.c src/memory/allocator_options.h \
  src/memory/allocator_release.c \
  src/memory/allocator_restore.c src/memory/allocator_restore.h \
  src/memory/allocator_sizes.c \
  src/memory/allocator_stats.c \
  src/memory/allocator_visit.c \
  src/memory/block_pool.c \
  src/memory/caching_allocator.c src/memory/caching_allocator.h \
  src/memory/expandable_segments.c \
  src/memory/free_set.c src/memory/free_set.h \
  src/memory/segment_map.c src/memory/segment_map.h \
  src/memory/segments.c

# program
libhighwater_a_SOURCES += \
  src/program/access_map.c src/program/access_map.h \
  src/program/live_storage.c src/program/live_storage.h \
  src/program/meaning.c src/program/meaning.h \
  src/program/program.c src/program/program.h \
  src/program/program_agreement.c \
  src/program/program_builder.c src/program/program_builder.h \
  src/program/program_check.c \
  src/program/program_fold.c src/program/program_fold.h \
  src/program/program_ids.c src/program/program_ids.h \
  src/program/program_listing.c \
  src/program/program_parse.c \
  src/program/program_print.c \
  src/program/program_reach.c src/program/program_reach.h \
  src/program/program_scan.c src/program/program_scan.h \
  src/program/program_schema.c src/program/program_schema.h \
  src/program/program_totals.c src/program/program_totals.h \
  src/program/rank_set.c src/program/rank_set.h

# network
libhighwater_a_SOURCES += \
  src/network/builder.c src/network/builder.h \
  src/network/builder_frames.c \
  src/network/builder_ops.c \
  src/network/builder_private.h \
  src/network/causal_lm.c src/network/causal_lm.h \
  src/network/classic_alibi.c src/network/classic_alibi.h \
  src/network/classic_block.c \
  src/network/classic_decoder.c src/network/classic_decoder.h \
  src/network/compile.c src/network/compile_private.h \
  src/network/compile_backward.c \
  src/network/compile_graph.c \
  src/network/compile_kernels.c \
  src/network/compile_partition.c \
  src/network/compiled.h \
  src/network/cub.c src/network/cub.h \
  src/network/family.c src/network/family.h \
  src/network/latent_attention.c src/network/latent_attention.h \
  src/network/layers.c src/network/layers.h \
  src/network/layers_attention.c \
  src/network/layers_lora.c src/network/layers_lora.h \
  src/network/layers_norm.c \
  src/network/layers_rope.c \
  src/network/layers_views.c \
  src/network/model_call.c src/network/model_call.h \
  src/network/moe.c src/network/moe.h \
  src/network/moe_decoder.c src/network/moe_decoder.h \
  src/network/moe_balance.c src/network/moe_balance.h \
  src/network/moe_experts.c \
  src/network/moe_router.c \
  src/network/network.c src/network/network.h \
  src/network/network_flops.c src/network/network_flops.h \
  src/network/op.c src/network/op.h \
  src/network/op_attention.c \
  src/network/op_convolution.c \
  src/network/op_gelu.c \
  src/network/op_lookup.c \
  src/network/op_loss.c \
  src/network/op_matmul.c \
  src/network/op_moe.c \
  src/network/op_norm.c \
  src/network/op_parts.c \
  src/network/op_pointwise.c \
  src/network/op_recipe.c src/network/op_recipe.h \
  src/network/op_recorded.c \
  src/network/ops_checks.c src/network/ops_checks.h \
  src/network/ops_format.c src/network/ops_format.h \
  src/network/ops_function.c \
  src/network/ops_modules.c \
  src/network/ops_play.c src/network/ops_play.h \
  src/network/ops_recorded.c \
  src/network/ops_rows.c \
  src/network/ops_value.c \
  src/network/strides.c src/network/strides.h \
  src/network/torchtitan_decoder.c src/network/torchtitan_decoder.h \
  src/network/torchtitan_latent.c src/network/torchtitan_latent.h \
  src/network/torchtitan_moe.c src/network/torchtitan_moe.h \
  src/network/torchtitan_router.c \
  src/network/transformers_activation.c src/network/transformers_activation.h \
  src/network/transformers_decoder.c src/network/transformers_decoder.h \
  src/network/transformers_decoder_block.c \
  src/network/transformers_encoder.c src/network/transformers_encoder.h \
  src/network/transformers_half.c src/network/transformers_half.h \
  src/network/transformers_lm.c src/network/transformers_lm.h \
  src/network/transformers_masks.c src/network/transformers_masks.h \
  src/network/transformers_mpt.c src/network/transformers_mpt.h \
  src/network/transformers_norm.c src/network/transformers_norm.h \
  src/network/transformers_root.c src/network/transformers_root.h \
  src/network/transformers_rope.c src/network/transformers_rope.h \
  src/network/transformers_seq2seq.c src/network/transformers_seq2seq.h

# compute
libhighwater_a_SOURCES += \
  src/compute/kernel_model.c src/compute/kernel_model.h \
  src/compute/kernel_slowdown.c src/compute/kernel_slowdown.h \
  src/compute/straggler.c src/compute/straggler.h

# collective
libhighwater_a_SOURCES += \
  src/collective/algorithm.c src/collective/algorithm.h \
  src/collective/collective.c src/collective/collective.h \
  src/collective/measured.c src/collective/measured.h

# strategy
libhighwater_a_SOURCES += \
  src/strategy/bf16_optimizer.c src/strategy/bf16_optimizer.h \
  src/strategy/ddp_buffers.c src/strategy/ddp_buffers.h \
  src/strategy/deepspeed.c src/strategy/deepspeed.h \
  src/strategy/fsdp1_accept.c \
  src/strategy/fsdp1_clip.c \
  src/strategy/fsdp1_gradient.c \
  src/strategy/fsdp1_handle.c \
  src/strategy/fsdp1_offload.c \
  src/strategy/fsdp1_optimizer_state.c \
  src/strategy/fsdp1_private.h \
  src/strategy/fsdp1_state.c \
  src/strategy/fsdp2_accept.c \
  src/strategy/fsdp2_expected.c \
  src/strategy/fsdp2_group.c \
  src/strategy/fsdp2_init.c \
  src/strategy/fsdp2_offload.c \
  src/strategy/fsdp2_prefetch.c \
  src/strategy/fsdp2_private.h \
  src/strategy/fsdp2_state.c \
  src/strategy/fsdp2_units.c \
  src/strategy/fsdp_groups.c src/strategy/fsdp_groups.h \
  src/strategy/fsdp_ignored.c src/strategy/fsdp_ignored.h \
  src/strategy/fsdp_options.c src/strategy/fsdp_options.h \
  src/strategy/range_map.c src/strategy/range_map.h \
  src/strategy/ddp_buffers.c src/strategy/ddp_buffers.h \
  src/strategy/retain.c src/strategy/retain.h \
  src/strategy/shard.c src/strategy/shard.h \
  src/strategy/state_dict.c src/strategy/state_dict.h \
  src/strategy/strategy.c src/strategy/strategy.h \
  src/strategy/torch_optimizer.c src/strategy/torch_optimizer.h \
  src/strategy/zero3_expected.c \
  src/strategy/zero3_fetch.c \
  src/strategy/zero3_gather.c \
  src/strategy/zero3_gradients.c \
  src/strategy/zero3_init.c \
  src/strategy/zero3_leaf.c \
  src/strategy/zero3_load.c \
  src/strategy/zero3_offload.c \
  src/strategy/zero3_private.h \
  src/strategy/zero3_secondary.c \
  src/strategy/zero3_step.c \
  src/strategy/zero3_trace.c \
  src/strategy/zero_flat.c src/strategy/zero_flat.h \
  src/strategy/zero_gradients.c src/strategy/zero_gradients.h \
  src/strategy/zero_load.c src/strategy/zero_load.h \
  src/strategy/zero_offload.c src/strategy/zero_offload.h \
  src/strategy/zero_reduce.c src/strategy/zero_reduce.h \
  src/strategy/zero_redundancy.c src/strategy/zero_redundancy.h \
  src/strategy/zero_scalars.c src/strategy/zero_scalars.h \
  src/strategy/zero_stage12.c src/strategy/zero_stage12.h \
  src/strategy/zero_state.c src/strategy/zero_state.h \
  src/strategy/zero_step.c

# lower
libhighwater_a_SOURCES += \
  src/lower/autograd.c \
  src/lower/checkpoint.c \
  src/lower/compiled.c \
  src/lower/grad_scaler.c src/lower/grad_scaler.h \
  src/lower/lower.c src/lower/lower.h \
  src/lower/optimizer_step.c src/lower/optimizer_step.h \
  src/lower/phase_load.c src/lower/phase_load.h \
  src/lower/phase_save.c src/lower/phase_save.h \
  src/lower/phases.c src/lower/phases.h \
  src/lower/plan_names.c src/lower/plan_names.h \
  src/lower/reentrant.c \
  src/lower/step_walk.c src/lower/step_walk.h \
  src/lower/tape.c src/lower/tape.h \
  src/lower/tape_modules.c \
  src/lower/tape_private.h \
  src/lower/tape_steps.c \
  src/lower/trainer_loop.c src/lower/trainer_loop.h

# exec
libhighwater_a_SOURCES += \
  src/exec/communicator.c src/exec/communicator.h \
  src/exec/device_memory.c src/exec/device_memory.h \
  src/exec/executor.c src/exec/executor.h \
  src/exec/fiber.c src/exec/fiber.h \
  src/exec/gpu.c src/exec/gpu.h \
  src/exec/host_thread.c src/exec/host_thread.h \
  src/exec/host_turns.c src/exec/host_turns.h \
  src/exec/labels.c src/exec/labels.h \
  src/exec/progress.c src/exec/progress.h \
  src/exec/rank.c src/exec/rank.h \
  src/exec/rank_classes.c src/exec/rank_classes.h \
  src/exec/rank_speed.c src/exec/rank_speed.h \
  src/exec/span_log.c src/exec/span_log.h \
  src/exec/timing.c src/exec/timing.h

# numeric
libhighwater_a_SOURCES += \
  src/numeric/numeric_attention.c \
  src/numeric/numeric_binary.c \
  src/numeric/numeric_collective.c src/numeric/numeric_collective.h \
  src/numeric/numeric_copies.c \
  src/numeric/numeric_creations.c \
  src/numeric/numeric_elementwise.c \
  src/numeric/numeric_flags.c \
  src/numeric/numeric_interruption.c src/numeric/numeric_interruption.h \
  src/numeric/numeric_kernel.c src/numeric/numeric_kernel.h \
  src/numeric/numeric_losses.c \
  src/numeric/numeric_masks.c \
  src/numeric/numeric_matmuls.c \
  src/numeric/numeric_memory.c src/numeric/numeric_memory.h \
  src/numeric/numeric_norms.c \
  src/numeric/numeric_numbers.c \
  src/numeric/numeric_optimizers.c \
  src/numeric/numeric_order.c src/numeric/numeric_order.h \
  src/numeric/numeric_random.c src/numeric/numeric_random.h \
  src/numeric/numeric_rank.c src/numeric/numeric_rank.h \
  src/numeric/numeric_reductions.c \
  src/numeric/numeric_run.c src/numeric/numeric_run.h \
  src/numeric/numeric_stream.c src/numeric/numeric_stream.h \
  src/numeric/numeric_task.c \
  src/numeric/numeric_tensor.c src/numeric/numeric_tensor.h

# report
libhighwater_a_SOURCES += \
  src/report/alive_tensors.c src/report/alive_tensors.h \
  src/report/block_activations.c src/report/block_activations.h \
  src/report/block_passes.c src/report/block_passes.h \
  src/report/chrome_calls.c \
  src/report/chrome_device.c \
  src/report/chrome_event.c src/report/chrome_event.h \
  src/report/chrome_host.c \
  src/report/chrome_memory.c \
  src/report/chrome_parts.h \
  src/report/chrome_trace.c src/report/chrome_trace.h \
  src/report/comparison.c src/report/comparison.h \
  src/report/comparison_collectives.c \
  src/report/comparison_json.c \
  src/report/comparison_kernels.c \
  src/report/comparison_limit.c src/report/comparison_limit.h \
  src/report/comparison_memory.c \
  src/report/comparison_parts.h \
  src/report/comparison_report.h \
  src/report/comparison_text.c \
  src/report/comparison_words.c src/report/comparison_words.h \
  src/report/critical_path.c src/report/critical_path.h \
  src/report/failure.c src/report/failure.h \
  src/report/failure_json.c \
  src/report/failure_story.c \
  src/report/failure_text.c \
  src/report/gathers.c src/report/gathers.h \
  src/report/gathers_table.c src/report/gathers_table.h \
  src/report/gnuplot.c src/report/gnuplot.h \
  src/report/group_paths.c src/report/group_paths.h \
  src/report/groups_table.c src/report/groups_table.h \
  src/report/host_places.c src/report/host_places.h \
  src/report/interval_set.c src/report/interval_set.h \
  src/report/lifetimes.c src/report/lifetimes.h \
  src/report/lifetimes_table.c src/report/lifetimes_table.h \
  src/report/memory_snapshot.c src/report/memory_snapshot.h \
  src/report/memory_snapshot_frames.c \
  src/report/memory_snapshot_parts.h \
  src/report/memory_snapshot_segments.c \
  src/report/memory_table.c src/report/memory_table.h \
  src/report/module_lines.c \
  src/report/network_summary.c src/report/network_summary.h \
  src/report/network_summary_json.c \
  src/report/network_summary_text.c \
  src/report/numbered_path.c src/report/numbered_path.h \
  src/report/peak_story.c src/report/peak_story.h \
  src/report/peak_story_groups.c \
  src/report/peak_story_json.c \
  src/report/peak_story_parts.h \
  src/report/peak_story_print.h \
  src/report/peak_story_rows.c \
  src/report/peak_story_text.c \
  src/report/run_directory.c src/report/run_directory.h \
  src/report/run_info.c src/report/run_info.h \
  src/report/run_info_fields.c src/report/run_info_fields.h \
  src/report/run_info_store.c src/report/run_info_store.h \
  src/report/run_tables.c src/report/run_tables.h \
  src/report/state_estimate.c src/report/state_estimate.h \
  src/report/stored_run.c src/report/stored_run.h \
  src/report/stream_clock.c src/report/stream_clock.h \
  src/report/streams_table.c src/report/streams_table.h \
  src/report/summary.c src/report/summary.h \
  src/report/summary_groups.c \
  src/report/summary_json.c src/report/summary_json.h \
  src/report/summary_parts.h \
  src/report/summary_text.c src/report/summary_text.h \
  src/report/summary_text_explain.c \
  src/report/summary_text_parts.h \
  src/report/summary_text_path.c \
  src/report/summary_text_tables.c \
  src/report/summary_time.c \
  src/report/table_text.c src/report/table_text.h \
  src/report/timeline_labels.c src/report/timeline_labels.h \
  src/report/timeline_table.c src/report/timeline_table.h

# import
libhighwater_a_SOURCES += \
  src/import/allocation_trace.c src/import/allocation_trace.h \
  src/import/allocation_trace_internal.h \
  src/import/allocation_trace_json.c \
  src/import/allocation_trace_link.c \
  src/import/allocation_trace_list.c \
  src/import/allocation_trace_snapshot.c src/import/allocation_trace_snapshot.h \
  src/import/byte_source.c src/import/byte_source.h \
  src/import/config_accelerate.c \
  src/import/config_arguments.c \
  src/import/config_batch.c src/import/config_batch.h \
  src/import/config_deepspeed.c src/import/config_deepspeed.h \
  src/import/config_file.c src/import/config_file.h \
  src/import/config_fsdp.c src/import/config_fsdp.h \
  src/import/config_reader.c src/import/config_reader.h \
  src/import/config_toml.c \
  src/import/config_toml_events.cpp src/import/config_toml_events.h \
  src/import/config_torchtitan.c \
  src/import/config_tree.c src/import/config_tree.h \
  src/import/config_yaml.c \
  src/import/json_pull.c src/import/json_pull.h \
  src/import/kineto_document.c \
  src/import/kineto_event.c \
  src/import/kineto_host.c \
  src/import/kineto_internal.h \
  src/import/kineto_link.c \
  src/import/kineto_phases.c \
  src/import/kineto_recording.c src/import/kineto_recording.h \
  src/import/kineto_timeline.c src/import/kineto_timeline.h \
  src/import/kineto_trace.c src/import/kineto_trace.h \
  src/import/nccl_tests_identity.c \
  src/import/nccl_tests_internal.h \
  src/import/nccl_tests_row.c \
  src/import/nccl_tests_table.c src/import/nccl_tests_table.h \
  src/import/oom_message.c src/import/oom_message.h \
  src/import/pickle_reader.c src/import/pickle_reader.h \
  src/import/pickle_reader_internal.h \
  src/import/pickle_scalars.c \
  src/import/pickle_stack.c \
  src/import/plan_export.c src/import/plan_export.h \
  src/import/plan_format.h src/import/plan_formats.c \
  src/import/plan_values.c src/import/plan_values.h \
  src/import/snapshot_file.c src/import/snapshot_file.h \
  src/import/snapshot_file_internal.h \
  src/import/snapshot_labels.c \
  src/import/snapshot_places.c src/import/snapshot_places.h \
  src/import/snapshot_recording.c src/import/snapshot_recording.h \
  src/import/snapshot_settings.c \
  src/import/snapshot_sizes.c src/import/snapshot_sizes.h \
  src/import/snapshot_start.c src/import/snapshot_start.h \
  src/import/snapshot_tables.c \
  src/import/trace_compare.c \
  src/import/trace_moments.c \
  src/import/trace_replay.c src/import/trace_replay.h \
  src/import/trace_replay_internal.h \
  src/import/training_config.c src/import/training_config.h

# simulate
libhighwater_a_SOURCES += \
  src/simulate/prefetch_cost.c src/simulate/prefetch_cost.h \
  src/simulate/process_memory.c src/simulate/process_memory.h \
  src/simulate/program_run.c src/simulate/program_run.h \
  src/simulate/run_facts.c src/simulate/run_facts.h \
  src/simulate/run_failure.c src/simulate/run_failure.h \
  src/simulate/run_simulation.c src/simulate/run_simulation.h \
  src/simulate/run_store.c src/simulate/run_store.h \
  src/simulate/scaled_network.c src/simulate/scaled_network.h \
  src/simulate/scenario.c src/simulate/scenario.h \
  src/simulate/simulate_ranks.c src/simulate/simulate_ranks.h \
  src/simulate/state_image.c src/simulate/state_image.h \
  src/simulate/verification.c src/simulate/verification.h \
  src/simulate/verification_report.c src/simulate/verification_report.h \
  src/simulate/verification_text.c \
  src/simulate/verified_comparison.c src/simulate/verified_comparison.h \
  src/simulate/verified_failure.c src/simulate/verified_failure.h \
  src/simulate/verified_judgement.c src/simulate/verified_judgement.h \
  src/simulate/verified_plan.c src/simulate/verified_plan.h \
  src/simulate/verified_rounding.c src/simulate/verified_rounding.h \
  src/simulate/verified_run.c src/simulate/verified_run.h \
  src/simulate/verified_start.c src/simulate/verified_start.h \
  src/simulate/verified_state.c src/simulate/verified_state.h

# search
libhighwater_a_SOURCES += \
  src/search/candidate.c src/search/candidate.h \
  src/search/equivalence.c src/search/equivalence.h \
  src/search/equivalence_internal.h src/search/equivalence_rank.c \
  src/search/equivalence_text.c \
  src/search/explanation.c src/search/explanation.h \
  src/search/gradient_flow.c src/search/gradient_flow.h \
  src/search/gradient_memory.c src/search/gradient_memory.h \
  src/search/gradient_sets.c src/search/gradient_sets.h \
  src/search/headroom.c src/search/headroom.h \
  src/search/oom_findings.c src/search/oom_findings.h \
  src/search/oom_search.c src/search/oom_search.h \
  src/search/plan_axes.c \
  src/search/plan_document.c src/search/plan_document.h \
  src/search/plan_json.c \
  src/search/plan_reason.c \
  src/search/plan_search.c src/search/plan_search.h \
  src/search/plan_shardings.c \
  src/search/plan_space.c src/search/plan_space.h \
  src/search/plan_space_internal.h \
  src/search/plan_stages.c src/search/plan_stages.h \
  src/search/plan_text.c src/search/plan_text.h \
  src/search/plan_trials.c src/search/plan_trials.h \
  src/search/remedies.c src/search/remedies.h \
  src/search/remedy_kinds.c src/search/remedy_kinds.h \
  src/search/remedy_split.c \
  src/search/sweep.c src/search/sweep.h \
  src/search/sweep_comparison.c src/search/sweep_comparison.h \
  src/search/sweep_directory.c src/search/sweep_directory.h \
  src/search/sweep_evidence.c src/search/sweep_evidence.h \
  src/search/sweep_facts.c src/search/sweep_facts.h \
  src/search/sweep_judge.c \
  src/search/sweep_leftovers.c src/search/sweep_leftovers.h \
  src/search/sweep_results.c src/search/sweep_results.h \
  src/search/sweep_row.c src/search/sweep_row.h \
  src/search/sweep_run.c src/search/sweep_run.h \
  src/search/sweep_text.c src/search/sweep_text.h \
  src/search/sweep_verification.c src/search/sweep_verification.h \
  src/search/trials.c src/search/trials.h \
  src/search/vary.c src/search/vary.h \
  src/search/workers.c src/search/workers.h

# calibrate
libhighwater_a_SOURCES += \
  src/calibrate/calibration.c src/calibrate/calibration.h \
  src/calibrate/calibration_report.c src/calibrate/calibration_report.h \
  src/calibrate/collectives_table.c src/calibrate/collectives_table.h \
  src/calibrate/device_probe.h \
  src/calibrate/device_probe_module.c \
  src/calibrate/device_writer.c src/calibrate/device_writer.h \
  src/calibrate/experiment.c src/calibrate/experiment.h \
  src/calibrate/fit.c src/calibrate/fit.h \
  src/calibrate/fit_device.c src/calibrate/fit_device.h \
  src/calibrate/machine_profile.c src/calibrate/machine_profile.h \
  src/calibrate/measure.c src/calibrate/measure.h \
  src/calibrate/measured_collectives.c src/calibrate/measured_collectives.h \
  src/calibrate/measurement_report.c src/calibrate/measurement_report.h \
  src/calibrate/measurements_file.c src/calibrate/measurements_file.h \
  src/calibrate/probe_group.c src/calibrate/probe_group.h \
  src/calibrate/process_place.c src/calibrate/process_place.h \
  src/calibrate/profile_writer.c src/calibrate/profile_writer.h \
  src/calibrate/sample_stats.c src/calibrate/sample_stats.h \
  src/calibrate/sweep.c src/calibrate/sweep.h \
  src/calibrate/traced_ops.c src/calibrate/traced_ops.h \
  src/calibrate/traced_report.c src/calibrate/traced_report.h \
  src/calibrate/wire.c src/calibrate/wire.h

# What needs CUDA, loaded when it is needed: its libraries take longer to load than a simulation takes.
EXTRA_DIST += \
  src/calibrate/cuda_collective.c \
  src/calibrate/cuda_collective_none.c \
  src/calibrate/cuda_gpu.c src/calibrate/cuda_gpu.h \
  src/calibrate/device_probe_cuda.c \
  src/calibrate/probe_kernels.cu src/calibrate/probe_kernels.h
if HAVE_CUDA
pkglibexec_PROGRAMS = device_probe_cuda.so
device_probe_cuda_so_SOURCES = \
  src/calibrate/cuda_gpu.c \
  src/calibrate/device_probe_cuda.c
if HAVE_NCCL
device_probe_cuda_so_SOURCES += src/calibrate/cuda_collective.c
else
device_probe_cuda_so_SOURCES += src/calibrate/cuda_collective_none.c
endif
device_probe_cuda_so_CFLAGS = -std=gnu11 $(WARNING_CFLAGS) -fPIC
device_probe_cuda_so_LDFLAGS = -shared -Wl,-z,defs
device_probe_cuda_so_LDADD = src/calibrate/probe_kernels.o $(CUDA_LIBS) $(GLIB_LIBS)
device_probe_cuda_so_DEPENDENCIES = src/calibrate/probe_kernels.o
src/calibrate/probe_kernels.o: src/calibrate/probe_kernels.cu src/calibrate/probe_kernels.h
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(NVCC) $(NVCCFLAGS) -Xcompiler -fPIC -I$(top_srcdir)/src -c -o $@ \
	  $(top_srcdir)/src/calibrate/probe_kernels.cu
CLEANFILES += src/calibrate/probe_kernels.o
endif

# cli
libhighwater_a_SOURCES += \
  src/cli/calibrate_gpus.c src/cli/calibrate_gpus.h \
  src/cli/command.c src/cli/command.h \
  src/cli/estimate.c src/cli/estimate.h \
  src/cli/estimate_print.c \
  src/cli/explain_message.c \
  src/cli/explain_print.c src/cli/explain_print.h \
  src/cli/figure_kinds.c src/cli/figure_kinds.h \
  src/cli/interrupts.c src/cli/interrupts.h \
  src/cli/plan_input.c src/cli/plan_input.h \
  src/cli/progress_line.c src/cli/progress_line.h \
  src/cli/replay_report.c src/cli/replay_report.h \
  src/cli/replay_report_json.c \
  src/cli/report_output.c src/cli/report_output.h \
  src/cli/run_options.c src/cli/run_options.h \
  src/cli/watching.c src/cli/watching.h
