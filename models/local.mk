# models/local.mk - the presets and the figures' scripts, installed as they lie here.
networkdir = $(pkgdatadir)/network
dist_network_DATA = \
  models/network/bert-base.json \
  models/network/gemma-2-9b.json \
  models/network/gpt2-xl.json \
  models/network/gpt2.json \
  models/network/llama-2-13b.json \
  models/network/llama-2-7b.json \
  models/network/llama-3-70b.json \
  models/network/llama-3-8b.json \
  models/network/llama-3.1-405b.json \
  models/network/llama-3.2-1b.json \
  models/network/mistral-7b.json \
  models/network/mixtral-8x7b.json \
  models/network/mpt-7b.json \
  models/network/pythia-1.4b.json \
  models/network/qwen2.5-7b.json \
  models/network/qwen3-8b.json \
  models/network/t5-base.json \
  models/network/tiny.json \
  models/network/vit-base.json \
  models/network/whisper-small.json \
  models/network/worked-case.json

programdir = $(pkgdatadir)/program
dist_program_DATA = \
  models/program/spike-no-prefetch.program \
  models/program/spike-retained.program \
  models/program/spike-split.program \
  models/program/spike.program

clusterdir = $(pkgdatadir)/cluster
dist_cluster_DATA = \
  models/cluster/a100-40gb-8.json \
  models/cluster/a100-80gb-8.json \
  models/cluster/a100-pcie-8.json \
  models/cluster/alps.json \
  models/cluster/aws-g5.json \
  models/cluster/aws-p3dn.json \
  models/cluster/aws-p4d.json \
  models/cluster/aws-p4de.json \
  models/cluster/aws-p5.json \
  models/cluster/b200-8.json \
  models/cluster/endless.json \
  models/cluster/gcp-a3-high.json \
  models/cluster/gcp-a3-mega.json \
  models/cluster/gcp-a3-ultra.json \
  models/cluster/gcp-a4.json \
  models/cluster/h100-4.json \
  models/cluster/h100-8.json \
  models/cluster/h100-pcie-8.json \
  models/cluster/h200-8.json \
  models/cluster/instant.json \
  models/cluster/l40s-8.json \
  models/cluster/oci-a100.json \
  models/cluster/polaris.json \
  models/cluster/rtx4090-8.json \
  models/cluster/v100-8.json

devicedir = $(pkgdatadir)/device
dist_device_DATA = \
  models/device/a100-pcie-40gb.json \
  models/device/a100-pcie-80gb.json \
  models/device/a100-sxm-40gb.json \
  models/device/a100-sxm-80gb.json \
  models/device/a10g-24gb.json \
  models/device/b200-sxm-180gb.json \
  models/device/endless.json \
  models/device/h100-pcie-80gb.json \
  models/device/h100-sxm-80gb.json \
  models/device/h100-sxm-96gb.json \
  models/device/h200-sxm-141gb.json \
  models/device/instant.json \
  models/device/l40s-48gb.json \
  models/device/rtx4090-24gb.json \
  models/device/v100-sxm2-32gb.json

fabricdir = $(pkgdatadir)/fabric
dist_fabric_DATA = \
  models/fabric/efa.json \
  models/fabric/infiniband.json \
  models/fabric/nvlink.json \
  models/fabric/nvswitch.json \
  models/fabric/pcie.json \
  models/fabric/roce.json \
  models/fabric/slingshot.json \
  models/fabric/tcp.json

plandir = $(pkgdatadir)/plan
dist_plan_DATA = \
  models/plan/ddp.json \
  models/plan/fsdp1-hybrid.json \
  models/plan/fsdp1.json \
  models/plan/fsdp2-no-reshard.json \
  models/plan/fsdp2.json \
  models/plan/hsdp.json \
  models/plan/internevo.json \
  models/plan/lora.json \
  models/plan/worked-case.json \
  models/plan/zero1.json \
  models/plan/zero2.json \
  models/plan/zero3.json

plotsdir = $(pkgdatadir)/plots
dist_plots_DATA = \
  plots/collectives.gnuplot \
  plots/common.gnuplot \
  plots/groups.gnuplot \
  plots/lifetimes.gnuplot \
  plots/strategies.gnuplot \
  plots/streams.gnuplot \
  plots/sweep.gnuplot \
  plots/timeline.gnuplot
