/* The door of rendezvous/protocol: everything about the bytes between members, coordinators and
 * operators. Pure: bytes and the time go in, messages and bytes come out.
 *
 *     message.h         the messages, and how they lie on the wire
 *     host_session.h    one connection as the coordinator's end sees it
 *     member_session.h  the same connection as the member's end sees it */
#ifndef RENDEZVOUS_PROTOCOL_H
#define RENDEZVOUS_PROTOCOL_H

#include "rendezvous/protocol/host_session.h"
#include "rendezvous/protocol/member_session.h"
#include "rendezvous/protocol/message.h"

#endif
