/* The door of rendezvous/protocol: the messages between members, coordinators and operators, and
 * both ends of a connection. Pure: bytes and the time go in, messages and bytes come out.
 *
 *     message.h         the messages and their encoding
 *     heirs.h           the order of succession in ROUND
 *     host_session.h    one connection, at the coordinator's end
 *     member_session.h  the connection of a node, at the member's end
 *     trunk.h           the frames of several members on the connection of their relay */
#ifndef RENDEZVOUS_PROTOCOL_H
#define RENDEZVOUS_PROTOCOL_H

#include "rendezvous/protocol/heirs.h"
#include "rendezvous/protocol/host_session.h"
#include "rendezvous/protocol/member_session.h"
#include "rendezvous/protocol/message.h"
#include "rendezvous/protocol/trunk.h"

#endif
