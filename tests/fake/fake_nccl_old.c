/* The fake NCCL without ncclCommSplit, as in NCCL before 2.18. */
#define FAKE_NCCL_OLD
#include "fake_nccl.c"
