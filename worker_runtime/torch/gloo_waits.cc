// The module torch_gloo: ends waits of the Gloo inside stock PyTorch. crunrt.recovery (Python)
// loads it, because Gloo itself does not end all waits of a broken connection.
//
// The gap in Gloo (gloo/transport/tcp/pair.cc, signalException): when a connection breaks, Gloo
// fails the operations that have not begun. It forgets a message that is half sent or half
// received, so the thread that waits for that message waits for the whole timeout of the group
// (30 minutes), although the sockets are closed. The larger the messages are, the more often a rank
// dies while one of them is under way.
//
// The remedy: Gloo waits for messages in two virtual functions of its class UnboundBuffer, waitRecv
// and waitSend. crunrt_torch_install() replaces both, in the class's table of virtual functions, by
// functions that add the buffer to a set, call the original, and remove the buffer from the set.
// crunrt_torch_end_waits() calls Gloo's own UnboundBuffer::signalException() for all buffers of the
// set. That makes their waits throw an exception, which torch reports as the error of the
// operation.
//
// crunrt_torch_install() finds Gloo's functions by their names in torch's library. If one of them
// is missing, it changes nothing and returns an error.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <set>
#include <stdexcept>

namespace {

// UnboundBuffer::waitRecv and waitSend: (this, where to store the peer's rank, timeout). The
// timeout is a std::chrono::milliseconds, which is passed as the integer that it holds.
using Wait = bool(void *buffer, int *rank, int64_t timeout_ms);
using Signal = void(void *buffer, std::exception_ptr error);

#define UNBOUND_BUFFER "4gloo9transport3tcp13UnboundBuffer"
#define MILLISECONDS   "NSt6chrono8durationIlSt5ratioILl1ELl1000EEEE"
constexpr const char *recv_symbol = "_ZN" UNBOUND_BUFFER "8waitRecvEPi" MILLISECONDS;
constexpr const char *send_symbol = "_ZN" UNBOUND_BUFFER "8waitSendEPi" MILLISECONDS;
constexpr const char *signal_symbol =
    "_ZN" UNBOUND_BUFFER "15signalExceptionENSt15__exception_ptr13exception_ptrE";
constexpr const char *table_symbol = "_ZTVN" UNBOUND_BUFFER "E";
// The table of virtual functions is searched up to this entry. In Gloo of 2026 it has 10 entries.
constexpr int table_entries_max = 12;

struct Waits {
    std::mutex mutex; // protects `buffers`
    std::multiset<void *> buffers;
    Wait *recv, *send;
    Signal *signal;
};

// Never freed, because Gloo's threads may still wait when the process ends.
Waits &waits() {
    static Waits &all = *new Waits();
    return all;
}

// Keeps a buffer in the set while a thread waits for it.
class Entry {
  public:
    explicit Entry(void *buffer) {
        std::lock_guard<std::mutex> lock(waits().mutex);
        place_ = waits().buffers.insert(buffer);
    }
    ~Entry() {
        std::lock_guard<std::mutex> lock(waits().mutex);
        waits().buffers.erase(place_);
    }
    Entry(const Entry &) = delete;
    Entry &operator=(const Entry &) = delete;

  private:
    std::multiset<void *>::iterator place_;
};

bool wait_recv(void *buffer, int *rank, int64_t timeout_ms) {
    Entry entry(buffer);
    return waits().recv(buffer, rank, timeout_ms);
}

bool wait_send(void *buffer, int *rank, int64_t timeout_ms) {
    Entry entry(buffer);
    return waits().send(buffer, rank, timeout_ms);
}

template <typename F> bool find(void *library, const char *symbol, F *&out) {
    out = reinterpret_cast<F *>(dlsym(library, symbol));
    return out != nullptr;
}

// Returns the protection (PROT_*) of the page at `address`, or -1.
int protection(uintptr_t address) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == nullptr) return -1;
    uintptr_t begin, end;
    char bits[5] = "", line[512];
    int found = -1;
    while (found < 0 && fgets(line, sizeof(line), maps) != nullptr) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, bits) != 3) continue;
        if (address < begin || address >= end) continue;
        found = (bits[0] == 'r' ? PROT_READ : 0) | (bits[1] == 'w' ? PROT_WRITE : 0) |
                (bits[2] == 'x' ? PROT_EXEC : 0);
    }
    fclose(maps);
    return found;
}

// Sets one entry of a table that the dynamic loader has made read-only. Returns 0 or -errno.
int set_entry(void **entry, void *function) {
    auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    uintptr_t page = reinterpret_cast<uintptr_t>(entry) & ~(size - 1);
    int before = protection(page);
    if (before < 0) return -EFAULT;
    void *at = reinterpret_cast<void *>(page);
    if (mprotect(at, size, before | PROT_WRITE) < 0) return -errno;
    __atomic_store_n(entry, function, __ATOMIC_SEQ_CST);
    return mprotect(at, size, before) < 0 ? -errno : 0;
}

// Returns the entry of the table that holds `function`, or NULL.
void **find_entry(void **table, void *function) {
    for (int i = 0; i < table_entries_max; i++)
        if (table[i] == function) return &table[i];
    return nullptr;
}

} // namespace

extern "C" {

// Call this once, with the handle of torch's library from dlopen(). It makes Gloo's waits known to
// crunrt_torch_end_waits(). Returns 0; -ENOENT if the library lacks one of the expected functions;
// or another negative errno.
__attribute__((visibility("default"))) int crunrt_torch_install(void *library) {
    Waits &all = waits();
    void *table;
    if (!find(library, recv_symbol, all.recv) || !find(library, send_symbol, all.send) ||
        !find(library, signal_symbol, all.signal) || !find(library, table_symbol, table)) {
        return -ENOENT;
    }
    void **recv = find_entry(static_cast<void **>(table), reinterpret_cast<void *>(all.recv));
    void **send = find_entry(static_cast<void **>(table), reinterpret_cast<void *>(all.send));
    if (recv == nullptr || send == nullptr) return -ENOENT;
    int rc = set_entry(recv, reinterpret_cast<void *>(wait_recv));
    return rc < 0 ? rc : set_entry(send, reinterpret_cast<void *>(wait_send));
}

// Call this in any thread when the round is over. It ends all waits of Gloo in this process with an
// exception whose text is `why`. Returns the number of these waits.
__attribute__((visibility("default"))) int crunrt_torch_end_waits(const char *why) {
    Waits &all = waits();
    std::lock_guard<std::mutex> lock(all.mutex);
    for (void *buffer : all.buffers)
        all.signal(buffer, std::make_exception_ptr(std::runtime_error(why)));
    return static_cast<int>(all.buffers.size());
}
}
