# lifetimes.gnuplot - one module's parameters and gradients through forward and backward: a lane for each kind of memory and of work, a
# panel for each time in which something happens to the module.
#
# By hand, on the table of `highwater report RUN --table lifetimes --module layers.3 > lifetimes.tsv`:
#   gnuplot -e "set terminal pngcairo noenhanced size 1200,720; set output 'lifetimes.png'" plots/lifetimes.gnuplot
# Memory is there from when its stream comes to use it until the compute stream has come to where the host gave it up.

if (!exists("plots")) plots = system(sprintf("dirname \"%s\"", ARG0))
load plots . "/common.gnuplot"
if (!exists("lifetimes")) lifetimes = "lifetimes.tsv"
if (!exists("title")) title = title_of(lifetimes)
if (exists("module") && module ne "") { title = module . " of " . title }

# ---- lanes
lanes = 0
lane_kinds = ""
lane_names = ""
array most[32]
stats lifetimes index "lanes" using (lanes = lanes + 1, most[lanes] = column(4), \
  strlen(lane_kinds = lane_kinds . " " . strcol(2)), strlen(lane_names = lane_names . " " . strcol(3))) nooutput
caption_of(n) = word(lane_kinds, n) eq "memory" ? words_of(word(lane_names, n)) . ", " . size(most[n]) : words_of(word(lane_names, n))
lane_colour(n) = word(lane_kinds, n) eq "memory" ? colour_of(word(lane_names, n)) : word(lane_kinds, n) eq "kernels" ? "#2f6ea8" : "#c05a10"

# ---- windows: at most four, the first and the last ones
windows = 0
array w_from[64]
array w_to[64]
w_names = ""
stats lifetimes index "windows" using (windows < 64 ? (windows = windows + 1, w_from[windows] = $1, w_to[windows] = $2, \
  strlen(w_names = w_names . sprintf(" %s", strcol(5)))) : 0) nooutput
panels = windows <= 4 ? windows : 4
window_of(p) = windows <= 4 || p <= 2 ? p : windows - 4 + p
if (windows == 0) {
  stats lifetimes index "held" using 1:2 nooutput
  panels = 1
  w_from[1] = STATS_min_x
  w_to[1] = STATS_max_y
  w_names = "-"
}
# A margin on both sides shows what was before and what stays.
do for [p=1:panels] {
  w = window_of(p)
  margin = 0.12 * (w_to[w] - w_from[w])
  if (margin <= 0) { margin = 1e-6 }
  w_from[w] = w_from[w] - margin
  w_to[w] = w_to[w] + margin
}

# ---- the frame
name_letters = is_text ? 24 : is_small ? 23 : 36
left_edge = screen_x(letter * name_letters)
right_edge = 1 - screen_x(letter * (is_text ? 2 : 3))
gap = screen_x(letter * 2.5)
panel_width = (right_edge - left_edge - gap * (panels - 1)) / panels
bottom = screen_y(is_text ? 4 : 3.3 * line)
top_edge = 1 - screen_y(is_text ? 2 : 3.4 * line)
set multiplot title title noenhanced
set tmargin at screen top_edge
set bmargin at screen bottom
set yrange [-lanes:0]
set border 1
unset ytics
unset key
set style fill solid noborder
# Memory grows upwards in its lane; what works is a bar in the middle of it.
base(n) = -n + 0.12
level(n, bytes) = base(n) + 0.72 * bytes / higher(most[n], 1)

do for [p=1:panels] {
  w = window_of(p)
  begin = w_from[w]
  end = w_to[w]
  second = end - begin >= 0.5 ? 1.0 : end - begin >= 0.5e-3 ? 1e-3 : 1e-6
  second_name = second == 1 ? "s" : second == 1e-3 ? "ms" : "µs"
  # Small numbers on the axis: it counts from the window's begin, which stands below.
  t(x) = (x - begin) / second
  width(text) = letter * (strlen(text) + 0.6) * (end - begin) / (panel_width * figure_width)
  fitting(text, from, to) = lower(to, end) - higher(from, begin) > width(text) ? text : ""
  middle(from, to) = t((higher(from, begin) + lower(to, end)) / 2)
  inside(x) = x > begin && x < end - width("100 ms")
  x_left = left_edge + (p - 1) * (panel_width + gap)
  set lmargin at screen x_left
  set rmargin at screen x_left + panel_width
  set xrange [0:t(end)]
  set xtics nomirror out
  if (panels > 2 || is_small || is_text) { set xtics t(end) > 4 * 10.0**floor(log10(t(end))) ? 2 * 10.0**floor(log10(t(end))) : 10.0**floor(log10(t(end))) }
  set xlabel sprintf("%s after %.6g s", second_name, begin) offset 0,(is_text ? 0 : 0.4)
  unset label
  name = word(w_names, w)
  set label 1 (name eq "-" ? "" : words_of(name)) at screen x_left + panel_width / 2, screen top_edge + screen_y(0.8 * line) center
  if (p == 1) {
    do for [n=1:lanes] {
      set label 10 + n clip(is_small || is_text ? words_of(word(lane_names, n)) : caption_of(n), name_letters - 2) \
        at screen left_edge - screen_x(letter), first (-n + 0.5) right
    }
  }
  if (is_text) {
    plot lifetimes index "held" using (t(higher($1, begin))):(-$5 - 0.5):(t(lower($2, end)) - t(higher($1, begin))):(0) with vectors nohead notitle, \
      "" index "spans" using (t($1)):(-$4 - 0.5):(t($2) - t($1)):(0) with vectors nohead notitle
  } else {
    set object 1 rectangle from graph 0, graph 0 to graph 1, graph 1 fillcolor rgb phase_tint(name) fillstyle solid noborder behind
    plot \
      for [n=1:lanes-1] -n with lines lc rgb "#bbbbbb" lw 0.7 notitle, \
      for [n=1:lanes] lifetimes index sprintf("level%d;", n - 1) using \
        (word(lane_kinds, n) eq "memory" ? t($1) : NaN):(base(n)):(level(n, $2)) with filledcurves lc rgb lane_colour(n) notitle, \
      for [n=1:lanes] lifetimes index sprintf("level%d;", n - 1) using \
        (word(lane_kinds, n) eq "memory" ? t($1) : NaN):(level(n, $2)) with lines lc rgb "#404040" lw 0.7 notitle, \
      for [n=1:lanes] lifetimes index "spans" using \
        ($4 == n - 1 ? t(($1 + $2) / 2) : NaN):(-n + 0.5):(t($1)):(t($2)):(-n + 0.22):(-n + 0.78) \
        with boxxyerror fillstyle solid border rgb "#404040" lc rgb lane_colour(n) notitle, \
      lifetimes index "spans" using (middle($1, $2)):(-$4 - 0.5):(fitting(duration($2 - $1), $1, $2)) \
        with labels textcolor rgb "#ffffff" notitle, \
      "" index "spans" using (word(lane_kinds, int($4) + 1) eq "collective" && inside($2) && fitting(duration($2 - $1), $1, $2) eq "" ? t($2) : NaN):(-$4 - 0.5): \
        (" " . duration($2 - $1)) with labels left notitle
  }
}
unset multiplot
