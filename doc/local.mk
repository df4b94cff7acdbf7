# doc/local.mk - manual page and documents.
dist_man_MANS = doc/highwater.1
dist_doc_DATA = README.md NEWS doc/calibration.md doc/formats.md doc/internals.md doc/method.md doc/questions.md doc/tutorial.md doc/validation.md doc/worked-case.md
picturesdir = $(docdir)/doc/pictures
dist_pictures_DATA = doc/pictures/llama-3-8b.png doc/pictures/streams.png doc/pictures/sweep.png doc/pictures/timeline.png
