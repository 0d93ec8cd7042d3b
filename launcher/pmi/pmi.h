/* PMI-1, the protocol by which programs of the MPICH family (MPICH, Intel MPI, Cray, mpi4py on
 * them) learn their rank and exchange addresses. With it they run under crun without mpirun.
 *
 * With --pmi, each worker is started as "crun --pmi-worker PROGRAM ARGUMENTS...". This process
 * forks a helper and then executes the program, which keeps the pid. A socket connects the two; the
 * variable PMI_FD gives its number to the program. The helper answers the program's requests. For
 * keys and barriers it uses the store at MASTER_ADDR:MASTER_PORT. The helper ends when the program
 * ends.
 *
 * A message is a line "cmd=NAME KEY=VALUE ...\n". docs/mpi.md lists the requests. */
#ifndef LAUNCHER_PMI_H
#define LAUNCHER_PMI_H

#include "base/error.h"

/* The MPI library that an executable needs. */
enum mpi_family { MPI_NONE, MPI_MPICH, MPI_OPEN_MPI };

/* Returns the family of the MPI that the ELF file needs directly; MPI_NONE if it needs none, is no
 * ELF file of this machine's kind, or cannot be read. */
enum mpi_family pmi_family_of_file(const char *path);

/* Executes argv[0] with a helper that speaks PMI-1. The environment must be that of a worker.
 * Returns only on failure: -errno, and a text in err. */
int pmi_run_worker(char *const *argv, struct cr_error *err);

#endif
