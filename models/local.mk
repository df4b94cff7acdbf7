# models/local.mk - the presets and the figures' scripts, installed as they lie here.
networkdir = $(pkgdatadir)/network
dist_network_DATA =

clusterdir = $(pkgdatadir)/cluster
dist_cluster_DATA =

devicedir = $(pkgdatadir)/device
dist_device_DATA =

plandir = $(pkgdatadir)/plan
dist_plan_DATA =

plotsdir = $(pkgdatadir)/plots
dist_plots_DATA =
