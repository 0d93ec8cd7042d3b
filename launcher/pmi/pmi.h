/* PMI-1 is the protocol by which programs of the MPICH family (MPICH, Intel MPI, Cray, mpi4py on
 * them) learn their rank and exchange addresses. crun answers it, so these programs run without
 * mpirun.
 *
 * With --pmi, each worker is started as "crun --pmi-worker PROGRAM ARGUMENTS...". This process
 * forks a helper and then executes the program, which keeps the pid. A socket connects program and
 * helper; the variable PMI_FD tells the program its descriptor. The helper answers the program's
 * requests. For keys and barriers it uses the store at MASTER_ADDR:MASTER_PORT. The helper ends
 * when the program ends.
 *
 * A message is a line "cmd=NAME KEY=VALUE ...\n". docs/mpi.md lists the requests. */
#ifndef LAUNCHER_PMI_H
#define LAUNCHER_PMI_H

#include "base/error.h"

/* The MPI library that an executable needs. */
enum mpi_family { MPI_NONE, MPI_MPICH, MPI_OPEN_MPI };

/* Returns the family of the MPI library that the ELF file needs directly. Returns MPI_NONE if it
 * needs none, or if the file cannot be read or is no ELF file for this machine. */
enum mpi_family pmi_family_of_file(const char *path);

/* Forks a helper that answers PMI-1, and executes argv[0] in this process, whose environment must
 * be that of a worker. Does not return on success. On failure, returns a negative errno and sets
 * err. */
int pmi_run_worker(char *const *argv, struct cr_error *err);

#endif
