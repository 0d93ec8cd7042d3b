/* Credentials of MUNGE, the daemon by which the hosts of a Slurm cluster trust each other. Each
 * host runs munged, and all of them have one key. A process gives its munged a text, and gets a
 * credential: the text, encrypted, with the uid of the process as the kernel names it. The munged
 * of any other host of the cluster decodes the credential, once, and only for a process of the uid
 * that the credential names. So a secret in a credential goes from a user's process to another
 * process of the same user, and to nobody else. */
#ifndef RENDEZVOUS_MUNGE_INTERNAL_H
#define RENDEZVOUS_MUNGE_INTERNAL_H

#include "rendezvous/secure/secure.h"

/* Finds the MUNGE daemon of this host, at the socket of the variable MUNGE_SOCKET or at libmunge's
 * default. Returns 0 and stores a voucher in *out; or returns 0, stores NULL in *out and sets err
 * to a phrase that says what is missing; or returns a negative errno and sets err, if there is a
 * socket but the daemon does not answer as it should. */
int munge_find(const struct secure_voucher **out, struct cr_error *err);

#endif
