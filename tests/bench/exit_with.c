/* The shortest worker: exits with the number that it is given. Linked statically, so that what is
 * measured is the launcher and not the dynamic loader. */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) { _exit(argc > 1 ? atoi(argv[1]) : 0); }
