// SPDX-License-Identifier: Apache-2.0
// Whether a peer is of this process's user. Equal ids are not enough in a user namespace: all users
// that it does not map have one id there, the overflow id (usually 65534, of `nobody`), and a
// process that has this id itself is none of them. If all ids are mapped, as outside of namespaces,
// that id is a user like any other.
#pragma once

#include <sys/types.h>

namespace cistern::shim {

// Reads what the kernel says of users, before is_own_user() is asked. Any thread; no cancellation
// point. A process changes its user namespace only while it has one thread.
void look_at_users();

// `user` as the kernel says it of a peer (SCM_CREDENTIALS). Any thread.
bool is_own_user(uid_t user);

}  // namespace cistern::shim
