/* A worker that exits at once, with the status that its first argument names (default 0). It is
 * linked statically, so that a benchmark measures the launcher and not the dynamic loader. */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) { _exit(argc > 1 ? atoi(argv[1]) : 0); }
