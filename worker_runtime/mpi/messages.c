/* Implements the messages of mpi.h: sends and receives, and requests. A request is a list of works
 * of libcrunrt; it is over when all of them are. */
#include "worker_runtime/mpi/crunmpi_internal.h"

#include <stdlib.h>

static crunrt_group *group_of(MPI_Comm comm, int peer, const char *call) {
    if (checked(comm, call)->group == NULL || peer == comm->rank)
        fail(call, "a rank cannot send to itself here; copy instead");
    if (peer < 0 || peer >= comm->size) fail(call, "the peer is not a rank of the communicator");
    return comm->group;
}

static uint32_t checked_tag(int tag, const char *call) {
    if (tag < 0) fail(call, "the tag is negative; give 0 or more; MPI_ANY_TAG is unsupported");
    return (uint32_t) tag;
}

static void set_status(MPI_Status *status, int source, int tag, size_t bytes) {
    if (status == MPI_STATUS_IGNORE) return;
    *status = (MPI_Status){source, tag, MPI_SUCCESS, (int) bytes};
}

int MPI_Send(const void *buffer, int count, MPI_Datatype datatype, int dest, int tag,
             MPI_Comm comm) {
    static const char call[] = "MPI_Send";
    crunrt_group *group = group_of(comm, dest, call);
    struct block b = block_of(count, datatype, call);
    must(crunrt_group_send(group, buffer, b.count, b.dtype, dest, checked_tag(tag, call)), call);
    return MPI_SUCCESS;
}

int MPI_Recv(void *buffer, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
             MPI_Status *status) {
    static const char call[] = "MPI_Recv";
    crunrt_group *group = group_of(comm, source, call);
    struct block b = block_of(count, datatype, call);
    must(crunrt_group_recv(group, buffer, b.count, b.dtype, source, checked_tag(tag, call)), call);
    set_status(status, source, tag, b.bytes);
    return MPI_SUCCESS;
}

MPI_Request request_new(int source, int tag, size_t bytes, const char *call) {
    MPI_Request r = calloc(1, sizeof(*r));
    if (r == NULL) fail(call, "out of memory");
    set_status(&r->status, source, tag, bytes);
    return r;
}

void request_add(MPI_Request r, crunrt_work *work, const char *call) {
    crunrt_work **more = realloc(r->more, ((size_t) r->more_count + 1) * sizeof(*more));
    if (more == NULL) fail(call, "out of memory");
    r->more = more;
    r->more[r->more_count++] = work;
}

int MPI_Isend(const void *buffer, int count, MPI_Datatype datatype, int dest, int tag,
              MPI_Comm comm, MPI_Request *request) {
    static const char call[] = "MPI_Isend";
    crunrt_group *group = group_of(comm, dest, call);
    struct block b = block_of(count, datatype, call);
    uint32_t number = checked_tag(tag, call);
    MPI_Request r = request_new(comm->rank, tag, b.bytes, call);
    must(crunrt_group_isend(group, buffer, b.count, b.dtype, dest, number, &r->work), call);
    *request = r;
    return MPI_SUCCESS;
}

int MPI_Irecv(void *buffer, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
              MPI_Request *request) {
    static const char call[] = "MPI_Irecv";
    crunrt_group *group = group_of(comm, source, call);
    struct block b = block_of(count, datatype, call);
    uint32_t number = checked_tag(tag, call);
    MPI_Request r = request_new(source, tag, b.bytes, call);
    must(crunrt_group_irecv(group, buffer, b.count, b.dtype, source, number, &r->work), call);
    *request = r;
    return MPI_SUCCESS;
}

static void finish(MPI_Request *request, MPI_Status *status) {
    if (status != MPI_STATUS_IGNORE) *status = (*request)->status;
    MPI_Request r = *request;
    crunrt_work_free(r->work);
    for (int i = 0; i < r->more_count; i++) crunrt_work_free(r->more[i]);
    free(r->more);
    free(r);
    *request = MPI_REQUEST_NULL;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    if (*request == MPI_REQUEST_NULL) {
        set_status(status, -1, -1, 0);
        return MPI_SUCCESS;
    }
    MPI_Request r = *request;
    if (r->work != NULL) must(crunrt_work_wait(r->work, CRUNRT_TIMEOUT_DEFAULT), "MPI_Wait");
    for (int i = 0; i < r->more_count; i++)
        must(crunrt_work_wait(r->more[i], CRUNRT_TIMEOUT_DEFAULT), "MPI_Wait");
    finish(request, status);
    return MPI_SUCCESS;
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses) {
    for (int i = 0; i < count; i++)
        (void) MPI_Wait(&requests[i], statuses != MPI_STATUSES_IGNORE ? &statuses[i] : NULL);
    return MPI_SUCCESS;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    MPI_Request r = *request;
    *flag = 1;
    if (r == MPI_REQUEST_NULL) return MPI_SUCCESS;
    if (r->work != NULL) must(crunrt_work_test(r->work, flag), "MPI_Test");
    for (int i = 0; *flag && i < r->more_count; i++)
        must(crunrt_work_test(r->more[i], flag), "MPI_Test");
    if (*flag) finish(request, status);
    return MPI_SUCCESS;
}

int MPI_Sendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                 void *recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
                 MPI_Comm comm, MPI_Status *status) {
    MPI_Request sending, receiving;
    (void) MPI_Irecv(recvbuf, recvcount, recvtype, source, recvtag, comm, &receiving);
    (void) MPI_Isend(sendbuf, sendcount, sendtype, dest, sendtag, comm, &sending);
    (void) MPI_Wait(&receiving, status);
    return MPI_Wait(&sending, MPI_STATUS_IGNORE);
}

int MPI_Get_count(const MPI_Status *status, MPI_Datatype datatype, int *count) {
    *count = status->crunmpi_bytes / (int) crunrt_dtype_size(dtype_of(datatype, "MPI_Get_count"));
    return MPI_SUCCESS;
}
