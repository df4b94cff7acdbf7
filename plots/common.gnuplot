# common.gnuplot - what all figures share: colours, units, letters, a column of text at the side.
#
# Loaded by the other scripts.  `highwater plot` sets terminal, output, `plots` (this folder), figure_width, figure_height
# (pixels; characters of text), `title` and the tables' files; by hand, whatever is not set gets the value that stands here.

is_text = GPVAL_TERM eq 'dumb'
if (!exists("figure_width")) figure_width = is_text ? 79 : 1200
if (!exists("figure_height")) figure_height = is_text ? 24 : 720
if (!exists("categories")) categories = "parameter optimizer_state sharded_gradient unsharded_parameter unsharded_gradient " \
  . "all_gather_buffer reduce_scatter_buffer activation temporary workspace other"
title_of(file) = system(sprintf("sed -n '1s/^# [^:]*: //p' \"%s\"", file))
columns_of(file) = system(sprintf("sed -n '2s/^# //p' \"%s\"", file))

# ---- letters: about so many pixels are a letter wide and a line high
is_small = !is_text && figure_width < 800
letter = is_text ? 1.0 : is_small ? 6.8 : 7.6
line = is_text ? 1.0 : is_small ? 14.5 : 18.0
screen_x(pixels) = pixels / real(figure_width)
screen_y(pixels) = pixels / real(figure_height)
clip(text, letters) = strlen(text) <= letters ? text : text[1:int(letters) - 1] . "…"
# What differs between long names stands at their end.
clip_front(text, letters) = strlen(text) <= letters ? text : "…" . text[strlen(text) - int(letters) + 2:*]
# Names of the program's own, "all_gather_buffer", in words; names of the user's stay as they are.
words_of(name) = name[1:10] eq "all_gather" ? "all-gather" . words_of(name[11:*]) : \
  name[1:14] eq "reduce_scatter" ? "reduce-scatter" . words_of(name[15:*]) : \
  name[1:10] eq "all_reduce" ? "all-reduce" . words_of(name[11:*]) : strstrt(name, "_") > 0 ? \
  name[1:strstrt(name, "_") - 1] . " " . words_of(name[strstrt(name, "_") + 1:*]) : name

# ---- units
unit_of(x) = x >= 2.0**30 ? 2.0**30 : x >= 2.0**20 ? 2.0**20 : 2.0**10
unit_name(x) = x >= 2.0**30 ? "GiB" : x >= 2.0**20 ? "MiB" : "KiB"
digits(x) = x >= 99.95 ? sprintf("%.0f", x) : x >= 9.995 ? sprintf("%.1f", x) : sprintf("%.2f", x)
size(x) = digits(x / unit_of(x)) . " " . unit_name(x)
duration(s) = s >= 1 ? digits(s) . " s" : s >= 1e-3 ? digits(s * 1e3) . " ms" : digits(s * 1e6) . " µs"

# Round distances of tics on an axis from 0 to top: three to eight of them, or half as many.
decade(top) = 10.0**floor(log10(top))
tic_of(top) = (top / decade(top) < 2 ? 0.2 : top / decade(top) < 5 ? 0.5 : 1.0) * decade(top) * (is_small || is_text ? 2 : 1)

higher(a, b) = a > b ? a : b
lower(a, b) = a < b ? a : b
found(list, name) = int(sum [i=1:words(list)] (word(list, i) eq name ? i : 0))

# ---- colours: families share a hue, and neighbours in a stack differ in brightness
# What stays is blue, what is gathered orange, buffers violet, the step's own green and yellow.
category_colours = "#17466f #6fa3d8 #c3dcf2 #b8500d #f5b27c #6b2c91 #c3abde #4f8a34 #f2cc4d #7a7a7a #d0d0d0"
colour_of(category) = found(categories, category) > 0 ? word(category_colours, found(categories, category)) : "#d0d0d0"
is_dark(category) = found("parameter unsharded_parameter all_gather_buffer activation workspace", category) > 0
phase_names = "zero_grad forward backward clip optimizer"
phase_tints = "0xdddddd 0xe3eefa 0xfdebd9 0xeadff2 0xe0f0da"
phase_tint(name) = found(phase_names, name) > 0 ? int(word(phase_tints, found(phase_names, name))) : 0xf4f4f4
red = "#c00000"
grey = "#555555"
