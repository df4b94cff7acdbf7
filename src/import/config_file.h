/* config_file.h - a DeepSpeed configuration in a file of its own, which another one names. */
#ifndef HIGHWATER_IMPORT_CONFIG_FILE_H
#define HIGHWATER_IMPORT_CONFIG_FILE_H

#include "import/config_deepspeed.h"

/* Reads the file that the key names: from the current folder, else from that of r's own file. */
void config_read_file(ConfigReader *r, const char *key, const DeepSpeedOutside *outside);

#endif
