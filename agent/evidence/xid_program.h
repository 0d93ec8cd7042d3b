/* The program crun-xid: waits for NVML's events about critical errors of GPUs. The agent starts it
 * (xid.h). */
#ifndef AGENT_XID_PROGRAM_H
#define AGENT_XID_PROGRAM_H

/* a process that has this name as its argv[0] runs xid_main() */
#define XID_NAME "crun-xid"

/* The program: waits for events of all GPUs, and writes each as a packet to stdout (xid_parse() in
 * xid.h reads it). Returns 0 if there is no NVML or no GPU that reports errors, or 1 if NVML
 * reports an error, such as that a GPU is lost. */
int xid_main(void);

#endif
