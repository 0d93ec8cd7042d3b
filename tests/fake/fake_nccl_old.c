/* The FAKE as a library from before ncclCommSplit (2.18). */
#define FAKE_NCCL_OLD
#include "fake_nccl.c"
