# sweep.gnuplot - variants of a plan: peak memory against step time, which fit, and which none beats in both.  Where steps have different
# numbers of tokens, it is the time of a thousand tokens that counts.
#
# By hand, on results.tsv of a folder of `highwater sweep --output`:
#   gnuplot -e "set terminal pngcairo noenhanced size 1200,720; set output 'sweep.png'; table = 'results.tsv'" plots/sweep.gnuplot

if (!exists("plots")) plots = system(sprintf("dirname \"%s\"", ARG0))
load plots . "/common.gnuplot"
if (!exists("table")) table = "results.tsv"
if (!exists("title")) title = title_of(table)
if (!exists("columns")) columns = columns_of(table)
set datafile missing "NaN"

# ---- what there is
# Columns: variant verdict pareto peak_allocated peak_reserved headroom step_s tokens_per_s exposed_s collectives startup_s label KEY...
is_point(x, s) = x > 0 && s > 0
rows = 0
fit = 0
unfit = 0
refused = 0
points = 0
front = 0
y_most = 0
y_least = 1e300
x_most = 0
x_least = 1e300
capacity = 0
fits(verdict) = verdict[1:4] eq "fits"
stats table using (rows = rows + 1, fit = fit + fits(strcol(2)), unfit = unfit + (strcol(2) eq "does_not_fit"), \
  refused = refused + (strcol(2) eq "refused"), 0) nooutput
# Tokens of a step, of the first variant that fits; have all as many?
tokens = 0
same_tokens = 1
stats table using (fits(strcol(2)) && is_point($5, $7) && $8 > 0 ? (tokens == 0 ? (tokens = $7 * $8) : \
  abs($7 * $8 / tokens - 1) > 0.01 ? (same_tokens = 0) : 0) : 0) nooutput
time_of(step, rate) = same_tokens ? step : 1000 / rate
# Where a point stands: by what is reserved, since that has to fit.
stats table using (fits(strcol(2)) && is_point($5, $7) ? (points = points + 1, front = front + ($3 == 1), \
  y_most = higher(y_most, $5), y_least = lower(y_least, $5), x_most = higher(x_most, time_of($7, $8)), x_least = lower(x_least, time_of($7, $8)), \
  capacity = higher(capacity, $5 + $6), 0) : 0) nooutput
if (points == 0) { y_most = 1; y_least = 0; x_most = 1; x_least = 0 }
unit = unit_of(y_most)
y(bytes) = bytes / unit
second = x_most >= 0.5 ? 1.0 : 1e-3
x(s) = s / second

x_name_of(unit) = (same_tokens ? "step time (" : "time of 1000 tokens of a GPU (") . unit . ")"

# ---- the frame: from near the least to above the most; the capacity where that is not far
has_capacity_line = points > 0 && capacity > 0 && capacity <= 2.0 * y_most
y_top = has_capacity_line ? higher(capacity, y_most) : y_most
y_span = higher(y_top - y_least, 0.1 * y_top)
x_span = higher(x_most - x_least, 0.1 * x_most)
side_letters = is_text ? 0 : is_small ? 22 : 29
side = is_text ? 0.97 : 1 - screen_x(letter * side_letters)
left_edge = screen_x(letter * 9)
set lmargin at screen left_edge
set rmargin at screen side
set tmargin at screen 1 - screen_y((is_text ? 2 : 2.4) * line)
set bmargin at screen screen_y((is_text ? 4 : 3.3) * line)
x_from = x(x_least - 0.12 * x_span)
x_to = x(x_most + 0.16 * x_span)
y_from = y(higher(0, y_least - 0.10 * y_span))
y_to = y(y_top + 0.12 * y_span)
set xrange [x_from:x_to]
set yrange [y_from:y_to]
set xlabel x_name_of(second == 1 ? "s" : "ms") offset 0,(is_text ? 0 : 0.4)
set ylabel sprintf("reserved at the peak (%s)", unit_name(unit)) offset (is_text ? 0 : 0.6),0
set xtics nomirror out
set ytics nomirror out
set border 3
if (!is_text) { set grid back lc rgb "#e0e0e0" lt 1 lw 0.6 }
set title title offset 0,(is_text ? 0 : -0.3)
unset key

# ---- labels: those of the front always, others as long as there are few; never on top of each other
plot_width = figure_width * (side - left_edge)
plot_height = figure_height - 5.7 * line
label_width(text) = letter * (strlen(text) + 1) / plot_width * (x_to - x_from)
label_height = 0.95 * line / plot_height * (y_to - y_from)
array taken_x[1024]
array taken_y[1024]
array taken_to[1024]
array label_text[512]
array label_x[512]
array label_y[512]
taken = 0
labels = 0
point_width = label_width("")
overlap(x0, x1, yy) = taken == 0 ? 0 : \
  sum [i=1:taken] (x0 < taken_to[i] && x1 > taken_x[i] && abs(yy - taken_y[i]) < label_height)
take(x0, x1, yy) = taken >= 1024 ? 0 : (taken = taken + 1, taken_x[taken] = x0, taken_to[taken] = x1, taken_y[taken] = yy, 0)
put(text, px, py) = (take(px, px + label_width(text), py), labels = labels + 1, label_text[labels] = text, label_x[labels] = px, label_y[labels] = py, 1)
# Right of the point, left of it, above or below; not at all, where all of them are taken.
try_at(text, px, py) = overlap(px, px + label_width(text), py) == 0 ? put(text, px, py) : 0
try(text, px, py) = labels >= 500 ? 0 : \
  try_at(text, px + point_width, py) ? 1 : try_at(text, px - point_width - label_width(text), py) ? 1 : \
  try_at(text, px - 0.5 * label_width(text), py + 1.05 * label_height) ? 1 : try_at(text, px - 0.5 * label_width(text), py - 1.05 * label_height)
stats table using (fits(strcol(2)) && is_point($5, $7) ? take(x(time_of($7, $8)) - point_width / 2, x(time_of($7, $8)) + point_width / 2, y($5)) : 0) nooutput
stats table using (fits(strcol(2)) && $3 == 1 && is_point($5, $7) ? try(strcol(12), x(time_of($7, $8)), y($5)) : 0) nooutput
most_labels = is_text || is_small ? 12 : 40
stats table using (fits(strcol(2)) && $3 != 1 && is_point($5, $7) && labels < most_labels ? try(strcol(12), x(time_of($7, $8)), y($5)) : 0) nooutput
do for [i=1:labels] {
  set label 1000 + i label_text[i] at label_x[i], label_y[i] left front
}

if (points == 0) {
  set label 999 "no variant fits" at graph 0.5, graph 0.5 center
  set xrange [0:1]
  set yrange [0:1]
  unset xtics
  unset ytics
}

if (is_text) {
  set xlabel sprintf(x_name_of(second == 1 ? "s" : "ms") . "; * on the front, o fits; %d do not fit, %d refused", unfit, refused)
  plot table using (fits(strcol(2)) && $3 != 1 ? x(time_of($7, $8)) : NaN):(y($5)) with points pt "o" notitle, \
    "" using (fits(strcol(2)) && $3 == 1 ? x(time_of($7, $8)) : NaN):(y($5)) with points pt "*" notitle, \
    (has_capacity_line ? y(capacity) : NaN) with lines notitle, NaN notitle
  exit
}

# ---- the side
set_y(n) = 1 - screen_y((2.9 + n) * line)
x_swatch = side + screen_x(1.2 * letter)
x_name = side + screen_x(4.4 * letter)
set label 1 "" at screen (x_swatch + x_name) / 2 - screen_x(0.6 * letter), screen set_y(0) point pt 7 ps 1.3 lc rgb "#17466f"
set label 2 (is_small ? "none better in both" : "none is better in both") at screen x_name, screen set_y(0) left
set label 3 "" at screen (x_swatch + x_name) / 2 - screen_x(0.6 * letter), screen set_y(1) point pt 6 ps 1.3 lw 1.6 lc rgb "#4a8cc7"
set label 4 "fits" at screen x_name, screen set_y(1) left
row = 1
with_retries = 0
stats table using (with_retries = with_retries + (strcol(2) eq "fits_with_retries")) nooutput
if (with_retries > 0) {
  row = row + 1
  set label 5 "" at screen (x_swatch + x_name) / 2 - screen_x(0.6 * letter), screen set_y(row) point pt 2 ps 1.2 lw 1.6 lc rgb red
  set label 6 "fits with retries" at screen x_name, screen set_y(row) left
}
if (has_capacity_line) {
  row = row + 1
  set arrow 7 from screen x_swatch, screen set_y(row) to screen x_name - screen_x(0.7 * letter), screen set_y(row) nohead lw 2 dt 2 lc rgb red
  set label 7 "capacity " . size(capacity) at screen x_name, screen set_y(row) left
}
if (unfit > 0) {
  row = row + 1.5
  set label 8 sprintf("%d of %d do not fit", unfit, rows) at screen x_swatch, screen set_y(row) left textcolor rgb red
}
if (refused > 0) {
  row = row + 1.2
  set label 9 sprintf("%d of %d refused", refused, rows) at screen x_swatch, screen set_y(row) left textcolor rgb red
}
# What the labels say: the keys that were varied.
if (labels > 0 && words(columns) > 12) {
  row = row + 1.7
  set label 10 "Labels" at screen x_swatch, screen set_y(row) left textcolor rgb grey
  do for [k=1:words(columns) - 12] {
    row = row + 1
    set label 10 + k clip_front(word(columns, k + 12), side_letters - 3) at screen x_swatch, screen set_y(row) left textcolor rgb grey
  }
}
plot \
  (has_capacity_line ? y(capacity) : NaN) with lines lc rgb red lw 2 dt 2 notitle, \
  table using (fits(strcol(2)) && $3 == 1 && is_point($5, $7) ? x(time_of($7, $8)) : NaN):(y($5)) smooth unique \
    with steps lc rgb "#17466f" lw 1.2 dt 3 title "front", \
  "" using (fits(strcol(2)) && $3 != 1 ? x(time_of($7, $8)) : NaN):(y($5)) with points pt 6 ps 1.3 lw 1.6 lc rgb "#4a8cc7" title "fits", \
  "" using (fits(strcol(2)) && $3 == 1 ? x(time_of($7, $8)) : NaN):(y($5)) with points pt 7 ps 1.3 lc rgb "#17466f" title "none is better in both", \
  "" using (strcol(2) eq "fits_with_retries" ? x(time_of($7, $8)) : NaN):(y($5)) with points pt 2 ps 1.2 lw 1.6 lc rgb red title "fits with retries", \
  NaN notitle
