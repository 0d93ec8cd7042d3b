/* Reads the list of needed libraries of a 64-bit ELF file: see elf_internal.h. The file may contain
 * anything, so each offset in it is checked against its length. */
#include "launcher/pmi/elf_internal.h"

#include <elf.h>
#include <string.h>

struct elf {
    const unsigned char *data;
    size_t len;
    Elf64_Ehdr header;
};

static int copy(const struct elf *e, uint64_t offset, void *out, size_t size) {
    if (offset > e->len || size > e->len - offset) return -1;
    memcpy(out, e->data + offset, size);
    return 0;
}

/* Copies program header number i to *out. Returns 0, or -1 if the header is not within the file. */
static int read_segment(const struct elf *e, unsigned i, Elf64_Phdr *out) {
    uint64_t table = e->header.e_phoff;
    if (table > e->len) return -1;
    return copy(e, table + (uint64_t) i * sizeof(*out), out, sizeof(*out));
}

/* Converts an address of the loaded program to an offset in the file. Returns e->len if no segment
 * contains the address. */
static uint64_t offset_of(const struct elf *e, uint64_t address) {
    Elf64_Phdr s;
    for (unsigned i = 0; i < e->header.e_phnum && read_segment(e, i, &s) == 0; i++) {
        bool has_it = s.p_type == PT_LOAD && address >= s.p_vaddr &&
                      address - s.p_vaddr < s.p_filesz && s.p_offset <= e->len;
        if (has_it) return s.p_offset + (address - s.p_vaddr);
    }
    return e->len;
}

static bool begins_with(const char *name, const char *beginning) {
    return strncmp(name, beginning, strlen(beginning)) == 0;
}

/* Returns the MPI family of the library with this file name, or MPI_NONE. All libraries of MPICH's
 * family share the version 12 of libmpi.so; Open MPI's libmpi.so has the version 20 or 40. */
static enum mpi_family family_of(const char *name) {
    if (begins_with(name, "libmpich.so") || begins_with(name, "libmpi.so.12")) return MPI_MPICH;
    if (begins_with(name, "libmpi.so.20") || begins_with(name, "libmpi.so.40")) return MPI_OPEN_MPI;
    return MPI_NONE;
}

/* Returns the MPI family of the library whose name is at `offset` in the file. */
static enum mpi_family family_at(const struct elf *e, uint64_t offset) {
    if (offset >= e->len) return MPI_NONE;
    const unsigned char *name = e->data + offset;
    return memchr(name, '\0', e->len - offset) == NULL ? MPI_NONE : family_of((const char *) name);
}

/* Returns the family of the first MPI library in the dynamic segment, or MPI_NONE. Reads the
 * segment's entries twice: the first pass finds the table of names, the second pass looks up the
 * names of the needed libraries in this table. */
static enum mpi_family search(const struct elf *e, const Elf64_Phdr *dynamic) {
    uint64_t names = e->len, count = dynamic->p_filesz / sizeof(Elf64_Dyn);
    enum mpi_family family = MPI_NONE;
    Elf64_Dyn entry;
    if (dynamic->p_offset > e->len) return MPI_NONE;
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < count && family == MPI_NONE; i++) {
            if (copy(e, dynamic->p_offset + i * sizeof(entry), &entry, sizeof(entry)) < 0) break;
            if (entry.d_tag == DT_NULL) break;
            if (pass == 0 && entry.d_tag == DT_STRTAB) names = offset_of(e, entry.d_un.d_ptr);
            bool is_name = pass == 1 && entry.d_tag == DT_NEEDED && entry.d_un.d_val < e->len;
            if (is_name) family = family_at(e, names + entry.d_un.d_val);
        }
    }
    return family;
}

enum mpi_family elf_mpi_family(const unsigned char *data, size_t len) {
    struct elf e = {.data = data, .len = len};
    Elf64_Phdr s;
    if (copy(&e, 0, &e.header, sizeof(e.header)) < 0) return MPI_NONE;
    const unsigned char *ident = e.header.e_ident;
    bool is_ours = memcmp(ident, ELFMAG, SELFMAG) == 0 && ident[EI_CLASS] == ELFCLASS64 &&
                   ident[EI_DATA] == ELFDATA2LSB && e.header.e_phentsize == sizeof(s);
    for (unsigned i = 0; is_ours && i < e.header.e_phnum && read_segment(&e, i, &s) == 0; i++) {
        if (s.p_type == PT_DYNAMIC) return search(&e, &s);
    }
    return MPI_NONE;
}
