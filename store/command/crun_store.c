/* The program crun-store: it runs a store server, or reads and changes the keys of any running
 * store. */
#include "store/command/command_internal.h"

#include "base/log/log.h"
#include "base/process/daemon.h"

#include <stdlib.h>

static const char man_description[] =
    ".B serve\n"
    "runs the store that\n"
    ".BR crun (1)\n"
    "otherwise hosts for its workers: the store that\n"
    ".B torch.distributed.TCPStore\n"
    "clients of every release connect to. The other commands talk to any such store, crun's or\n"
    "torch's.\n"
    ".PP\n"
    "With \\-\\-json a command prints one line of JSON; bytes of keys and values outside\n"
    "printable ASCII stand in it as \\eu00XX, one per byte. In text, bytes of a key that are not\n"
    "printable UTF\\-8 are shown as \\exNN; values are printed as they are.\n"
    ".PP\n"
    "Options stand in front of the first key. A key that begins with dashes needs\n"
    "\\-\\- in front.\n";

static const char man_tail[] =
    ".SH ENVIRONMENT\n"
    ".TP\n"
    ".B LOGLEVEL\n"
    "debug, info, warning (the default) or error.\n"
    ".TP\n"
    ".B NOTIFY_SOCKET\n"
    "Set by systemd: serve reports there that it is ready, and that it stops.\n"
    ".SH \"EXIT STATUS\"\n"
    "0; 1 when the command could not be carried out, with the reason on stderr; 2 when the\n"
    "command line is wrong.\n"
    ".SH EXAMPLES\n"
    ".nf\n"
    "$ crun\\-store serve \\-\\-host 127.0.0.1 \\-\\-port 29500 \\-\\-max\\-memory 512M\n"
    "127.0.0.1:29500\n"
    ".fi\n"
    ".SH \"SEE ALSO\"\n"
    ".BR crun (1);\n"
    "docs/protocols/store.md describes the wire.\n";

static const struct cr_command *const commands[] = {
    &command_serve, &command_get,    &command_set,  &command_add,  &command_wait,
    &command_keys,  &command_delete, &command_stat, &command_ping, NULL};

static const struct cr_program program = {
    .name = "crun-store",
    .summary = "a key-value store for torch's TCPStore clients, and a look into a running one",
    .commands = commands,
    .help_tail = "\n"
                 "Exit status: 0; 1: not done, the reason is on stderr; 2: the command line is "
                 "wrong.\n"
                 "The store may be crun's or torch's of any release. More: man crun-store",
    .man_description = man_description,
    .man_tail = man_tail,
};

int main(int argc, char **argv) {
    cr_keep_standard_files();
    cr_log_setup("crun-store", cr_log_parse_level(getenv("LOGLEVEL"), CR_LOG_WARN));
    return cr_program_main(&program, argc, argv);
}
