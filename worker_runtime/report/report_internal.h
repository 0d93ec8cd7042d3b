/* The function of error_file.c that other files of this chamber call. */
#ifndef RUNTIME_REPORT_INTERNAL_H
#define RUNTIME_REPORT_INTERNAL_H

#include "worker_runtime/report/report.h"

/* Returns the value of TORCHELASTIC_ERROR_FILE, or NULL if it is unset or empty. */
const char *error_file_path(void);

#endif
