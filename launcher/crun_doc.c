/* Prints what the option table knows, for `make docs`: crun-doc man | completion. */
#include "launcher/options.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    struct cr_buffer b = {0};
    int rc = -1;
    if (argc == 2 && strcmp(argv[1], "man") == 0) rc = options_write_man(&b);
    if (argc == 2 && strcmp(argv[1], "completion") == 0) rc = options_write_completion(&b);
    if (rc == 0) rc = fwrite(b.data, 1, b.len, stdout) == b.len && fflush(stdout) == 0 ? 0 : -1;
    if (rc != 0) (void) fprintf(stderr, "usage: crun-doc man|completion\n");
    cr_buffer_done(&b);
    return rc == 0 ? 0 : 2;
}
