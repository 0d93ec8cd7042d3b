/* Tests of PMI-1: the answers to requests, the text that says which ranks are on which node, and
 * the search for the MPI library that an executable needs. */
#include "base/memory.h"
#include "launcher/pmi/elf_internal.h"
#include "launcher/pmi/request_internal.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>

static const struct pmi_place place = {.rank = 1, .size = 4};
static struct pmi_request request;
static struct cr_buffer answer;

static void close_answer(void) { cr_buffer_done(&answer); }

static const char *ask(const char *line) {
    cr_buffer_clear(&answer);
    ck_assert_int_eq(cr_buffer_printf(&answer, "%s", ""), 0);
    ck_assert_int_eq(pmi_read_request(line, &place, &request, &answer), 0);
    return answer.data;
}

START_TEST(facts_are_answered_at_once) {
    ck_assert_str_eq(ask("cmd=init pmi_version=1 pmi_subversion=1"),
                     "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    ck_assert(request.is_init);
    ck_assert_str_eq(ask("cmd=get_universe_size"), "cmd=universe_size rc=0 size=4\n");
    ck_assert_int_eq(request.action, PMI_ANSWER);
    ck_assert_str_eq(ask("cmd=get_appnum"), "cmd=appnum rc=0 appnum=0\n");
    ck_assert_str_eq(ask("cmd=get_my_kvsname "), "cmd=my_kvsname rc=0 kvsname=crun\n");
    ck_assert_str_eq(ask("cmd=get_maxes"),
                     "cmd=maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=1024\n");
    ck_assert_str_eq(ask("cmd=finalize"), "cmd=finalize_ack rc=0\n");
    ck_assert_int_eq(request.action, PMI_END);
    ck_assert_str_eq(ask("cmd=abort exitcode=3"), "");
    ck_assert_int_eq(request.action, PMI_ABORT);
    ck_assert_str_eq(ask("mcmd=spawn"), "cmd= rc=-1 msg=not_supported\n");
    ck_assert_str_eq(ask("cmd=spawn"), "cmd=spawn rc=-1 msg=not_supported\n");
}
END_TEST

START_TEST(keys_are_put_and_got) {
    ck_assert_str_eq(ask("cmd=put kvsname=crun key=P1-bc value=a=b$c"),
                     "cmd=put_result rc=0 msg=success\n");
    ck_assert_int_eq(request.action, PMI_PUT);
    ck_assert_str_eq(request.key, "P1-bc");
    ck_assert_str_eq(request.value, "a=b$c");
    ck_assert_str_eq(ask("cmd=get kvsname=crun key=P0"), "");
    ck_assert_int_eq(request.action, PMI_GET);
    ck_assert_str_eq(request.key, "P0");
    ck_assert_int_eq(pmi_write_value("P0", "x", &answer), 0);
    ck_assert_str_eq(answer.data, "cmd=get_result rc=0 msg=success value=x\n");
    cr_buffer_clear(&answer);
    ck_assert_int_eq(pmi_write_value("P0", NULL, &answer), 0);
    ck_assert_str_eq(answer.data, "cmd=get_result rc=-1 msg=key_P0_not_found value=unknown\n");
}
END_TEST

START_TEST(long_keys_and_values_are_refused) {
    char line[4000];
    (void) snprintf(line, sizeof(line), "cmd=put key=%0300d value=x", 0);
    ck_assert_str_eq(ask(line), "cmd=put_result rc=-1 msg=too_long\n");
    ck_assert_int_eq(request.action, PMI_ANSWER);
    (void) snprintf(line, sizeof(line), "cmd=put key=k value=%02100d", 0);
    ck_assert_str_eq(ask(line), "cmd=put_result rc=-1 msg=too_long\n");
    ck_assert_str_eq(ask("cmd=put value=x"), "cmd=put_result rc=-1 msg=too_long\n");
    ck_assert_str_eq(ask("cmd=get"), "cmd=get_result rc=-1 msg=no_such_key value=unknown\n");
}
END_TEST

START_TEST(a_mapping_joins_nodes_of_one_size) {
    const uint32_t workers[] = {8, 8, 4, 8};
    cr_buffer_clear(&answer);
    ck_assert_int_eq(pmi_write_mapping(workers, 4, &answer), 0);
    ck_assert_str_eq(answer.data, "(vector,(0,2,8),(2,1,4),(3,1,8))");
}
END_TEST

/* ---- executables ---- */

/* An ELF file with two segments and a dynamic table that needs one library. */
struct file {
    Elf64_Ehdr header;
    Elf64_Phdr segments[2];
    Elf64_Dyn dynamic[3];
    char names[32];
};

static struct file make_file(const char *library) {
    struct file f = {
        .header = {.e_phoff = offsetof(struct file, segments), .e_phnum = 2,
                   .e_phentsize = sizeof(Elf64_Phdr)},
        .segments = {{.p_type = PT_LOAD, .p_vaddr = 0x1000, .p_filesz = sizeof(struct file)},
                     {.p_type = PT_DYNAMIC, .p_offset = offsetof(struct file, dynamic),
                      .p_filesz = sizeof(f.dynamic)}},
        .dynamic = {{.d_tag = DT_NEEDED, .d_un.d_val = 1},
                    {.d_tag = DT_STRTAB, .d_un.d_ptr = 0x1000 + offsetof(struct file, names)},
                    {.d_tag = DT_NULL}}};
    memcpy(f.header.e_ident, ELFMAG, SELFMAG);
    f.header.e_ident[EI_CLASS] = ELFCLASS64;
    f.header.e_ident[EI_DATA] = ELFDATA2LSB;
    (void) snprintf(f.names + 1, sizeof(f.names) - 1, "%s", library);
    return f;
}

START_TEST(the_family_follows_from_the_needed_library) {
    static const struct {
        const char *library;
        enum mpi_family family;
    } cases[] = {{"libmpich.so.12", MPI_MPICH}, {"libmpi.so.12", MPI_MPICH},
                 {"libmpi.so.40", MPI_OPEN_MPI}, {"libc.so.6", MPI_NONE}};
    for (size_t i = 0; i < CR_ARRAY_LEN(cases); i++) {
        struct file f = make_file(cases[i].library);
        ck_assert_int_eq(elf_mpi_family((const unsigned char *) &f, sizeof(f)), cases[i].family);
    }
    ck_assert_int_eq(elf_mpi_family((const unsigned char *) "#!/bin/sh\n", 10), MPI_NONE);
    ck_assert_int_eq(elf_mpi_family(NULL, 0), MPI_NONE);
}
END_TEST

/* Cuts the file at each byte, and changes each byte. The parser must not read beyond the end, which
 * the sanitizers would detect. */
START_TEST(broken_files_are_survived) {
    struct file f = make_file("libmpich.so.12");
    for (size_t cut = 0; cut < sizeof(f); cut++) {
        unsigned char *copy = malloc(cut + 1);
        memcpy(copy, &f, cut);
        (void) elf_mpi_family(copy, cut);
        free(copy);
    }
    for (size_t i = 0; i < sizeof(f); i++) {
        struct file broken = f;
        ((unsigned char *) &broken)[i] ^= 0xff;
        (void) elf_mpi_family((const unsigned char *) &broken, sizeof(broken));
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("pmi");
    TCase *t = tcase_create("pmi");
    tcase_add_checked_fixture(t, NULL, close_answer);
    tcase_add_test(t, facts_are_answered_at_once);
    tcase_add_test(t, keys_are_put_and_got);
    tcase_add_test(t, long_keys_and_values_are_refused);
    tcase_add_test(t, a_mapping_joins_nodes_of_one_size);
    tcase_add_test(t, the_family_follows_from_the_needed_library);
    tcase_add_test(t, broken_files_are_survived);
    suite_add_tcase(s, t);
    return run_suite(s);
}
