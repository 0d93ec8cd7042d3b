/* Finds out which MPI library an executable needs, given the bytes of its file. Pure. */
#ifndef LAUNCHER_PMI_ELF_H
#define LAUNCHER_PMI_ELF_H

#include "launcher/pmi/pmi.h"

#include <stdbool.h>
#include <stddef.h>

/* Returns the family of the first MPI library among the DT_NEEDED entries of the ELF file in
 * data[0..len); MPI_NONE if it has none, or if the bytes are no ELF file. */
enum mpi_family elf_mpi_family(const unsigned char *data, size_t len);

#endif
