/* Finds out from the bytes of an executable which MPI library it needs. Pure. */
#ifndef LAUNCHER_PMI_ELF_H
#define LAUNCHER_PMI_ELF_H

#include "launcher/pmi/pmi.h"

#include <stdbool.h>
#include <stddef.h>

/* Returns the family of the first MPI library among the DT_NEEDED entries of the file in
 * data[0..len), which may be any bytes. */
enum mpi_family elf_mpi_family(const unsigned char *data, size_t len);

#endif
