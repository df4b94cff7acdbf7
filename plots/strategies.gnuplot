# strategies.gnuplot - memory of several runs as stacked bars, at rest and at the peak.
#
# By hand, on tables of `highwater report RUN --table memory`, put behind each other without comments and empty lines:
#   for run in a b; do highwater report $run --table memory; done | grep '^[^#]' > memory.tsv
#   gnuplot -e "set terminal pngcairo noenhanced size 1200,720; set output 'strategies.png'" plots/strategies.gnuplot

if (!exists("plots")) plots = system(sprintf("dirname \"%s\"", ARG0))
load plots . "/common.gnuplot"
if (!exists("memory")) memory = "memory.tsv"
if (!exists("title")) title = "memory"

# ---- what there is: a bar for each row, runs apart from each other
bars = 0
runs = 0
last = ""
highest = 1
capacity = 0
array bar_at[1024]
array run_at[1024]
array run_name[1024]
# Two bars of a run stand next to each other.
position(run, name) = (is_new = (name ne last), runs = runs + is_new, last = name, bars = bars + 1, \
  bar_at[bars] = is_new ? (bars == 1 ? 0 : bar_at[bars - 1] + 1.5) : bar_at[bars - 1] + 0.95, \
  run_name[runs] = name, run_at[runs] = is_new ? bar_at[bars] : (run_at[runs] + bar_at[bars]) / 2, 0)
stats memory using (bars < 1024 ? position(0, strcol(1)) : 0) nooutput
stats memory using 3 nooutput
highest = STATS_max
stats memory using 4 nooutput
if (exists("STATS_max") && STATS_max > highest) { highest = STATS_max }
same_capacity = 1
stats memory using (capacity == 0 ? (capacity = column(5)) : column(5) != capacity ? (same_capacity = 0) : 0) nooutput

used = ""
array most[words(categories)]
do for [k=1:words(categories)] {
  stats memory using (column(k + 5)) nooutput
  most[k] = STATS_max
  if (STATS_max > 0) { used = used . sprintf(" %d", k) }
}
category_of(i) = word(categories, int(word(used, i)))

unit = unit_of(highest)
y(x) = x / unit
has_capacity_line = capacity > 0 && capacity <= 3 * highest
top = 1.10 * y(has_capacity_line ? higher(highest, capacity) : highest)

# ---- the frame
side_letters = is_text ? 0 : is_small ? 24 : 29
side = is_text ? 0.98 : 1 - screen_x(letter * side_letters)
left_edge = screen_x(letter * 8)
set lmargin at screen left_edge
set rmargin at screen side
set tmargin at screen 1 - screen_y(2.4 * line)
set bmargin at screen screen_y(is_text ? 4 : 3.4 * line)
set title title offset 0,(is_text ? 0 : -0.3)
set border 3
set xrange [-0.9:bar_at[bars] + 0.9]
set yrange [0:top]
set ytics 0, tic_of(top), top nomirror out
set ylabel unit_name(unit) offset (is_text ? 0 : 1.2),0
unset xtics
unset key
set style fill solid border rgb "#404040"
plot_width = figure_width * (side - left_edge)
plot_height = figure_height - 5.8 * line
bar_letters = plot_width / (bar_at[bars] + 1.8) * 0.9 / letter
run_letters = plot_width / (bar_at[bars] + 1.8) * 2.3 / letter
do for [r=1:runs] {
  set label 500 + r clip(run_name[r], run_letters) at first run_at[r], graph 0 offset 0, (is_text ? -2 : -2.0) center
}
moment_name(m) = bar_letters <= 5 && m ne "out_of_memory" ? "" : m eq "at_rest" ? (bar_letters > 7 ? "at rest" : "rest") : \
  m eq "out_of_memory" ? (bar_letters > 13 ? "out of memory" : "OOM") : "peak"
half = 0.42
below(n) = sum [i=1:n-1] y(column(int(word(used, i)) + 5))
upto(n) = sum [i=1:n] y(column(int(word(used, i)) + 5))
centre(n) = (below(n) + upto(n)) / 2
# An area's name and size stand in it where there is room.
data_line = line * top / plot_height
area_name(n) = upto(n) - below(n) < 1.05 * data_line ? "" : \
  strlen(words_of(category_of(n))) + 6 < bar_letters ? words_of(category_of(n)) . " " . digits(upto(n) - below(n)) : \
  strlen(words_of(category_of(n))) < bar_letters ? words_of(category_of(n)) : bar_letters > 5 ? digits(upto(n) - below(n)) : ""
# A bar's number stands above the line of what is reserved where it would lie on it.
above(allocated, reserved) = reserved ne "NaN" && y(real(reserved) - allocated) < 1.5 * data_line ? real(reserved) : allocated
bar(n) = bar_at[int(n) + 1]

if (is_text) {
  plot memory using (bar($0)):(y($3)) with impulses notitle, \
    "" using (bar($0)):(y($3)):(digits(y($3))) with labels offset 0,1 notitle, \
    "" using (bar($0)):(0):(moment_name(strcol(2))) with labels offset 0,-1 notitle, \
    (has_capacity_line ? y(capacity) : NaN) with lines notitle
  exit
}

set_y(n) = 1 - screen_y((2.9 + n) * line)
x_swatch = side + screen_x(1.2 * letter)
x_name = side + screen_x(3.4 * letter)
row = -1
do for [n=words(used):1:-1] {
  row = row + 1
  set object 10 + row rectangle from screen x_swatch, screen set_y(row - 0.3) to screen x_name - screen_x(0.7 * letter), screen set_y(row + 0.3) \
    fillcolor rgb colour_of(category_of(n)) fillstyle solid border rgb "#404040" front clip
  set label 10 + row words_of(category_of(n)) at screen x_name, screen set_y(row) left
}
row = row + 1
set arrow 10 from screen x_swatch, screen set_y(row) to screen x_name - screen_x(0.7 * letter), screen set_y(row) nohead lw 3 lc rgb "#000000"
set label 10 + row "reserved at the peak" at screen x_name, screen set_y(row) left
row = row + 1
if (has_capacity_line) {
  set arrow 11 from screen x_swatch, screen set_y(row) to screen x_name - screen_x(0.7 * letter), screen set_y(row) nohead lw 2 dt 2 lc rgb red
}
caption = bar_letters > 5 ? "above bars: allocated" : "at rest, and at the peak"
set label 40 caption at screen x_swatch, screen set_y(row + 1.5) left
caption = capacity <= 0 ? "no capacity known" : has_capacity_line ? "capacity " . size(capacity) : sprintf("capacity %s, above", size(capacity))
set label 10 + row caption at screen x_name, screen set_y(row) left

plot \
  for [n=words(used):1:-1] memory using (bar($0)):(centre(n)):(bar($0) - half):(bar($0) + half):(below(n)):(upto(n)) \
    with boxxyerror lc rgb colour_of(category_of(n)) title words_of(category_of(n)), \
  for [n=1:words(used)] memory using (bar($0)):(centre(n)):(area_name(n)) with labels \
    textcolor rgb (is_dark(category_of(n)) ? "#ffffff" : "#000000") notitle, \
  memory using (bar($0) - half):(y($4)):(2 * half):(0) with vectors nohead lc rgb "#000000" lw 3 title "reserved at the peak", \
  "" using (bar($0)):(y(above($3, strcol(4)))):(digits(y($3))) with labels offset 0,0.6 notitle, \
  "" using (bar($0)):(0):(moment_name(strcol(2))) with labels offset 0,-0.8 notitle, \
  (has_capacity_line && same_capacity ? y(capacity) : NaN) with lines lc rgb red lw 2 dt 2 notitle, \
  memory using (has_capacity_line && !same_capacity ? bar($0) - half - 0.06 : NaN):(y($5)):(2 * half + 0.12):(0) with vectors nohead lc rgb red lw 2 dt 2 notitle
