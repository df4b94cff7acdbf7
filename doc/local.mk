# doc/local.mk - manual page and documents.
dist_man_MANS = doc/highwater.1
dist_doc_DATA = README.md NEWS doc/calibration.md doc/formats.md doc/internals.md doc/method.md doc/validation.md
