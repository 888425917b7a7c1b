/*
 * The NASD authentication flavor for libtirpc: an AUTH handle that shows a capability and proves
 * it with digests of suite 0, as docs/wire-protocol.md says.
 */

#ifndef NASD_AUTH_H
#define NASD_AUTH_H

#include <stdint.h>

#include "nasd.h"

/*
 * A handle for calls by this capability, whose own key (before any narrowing) is `own_key`, protected
 * as `protection` says. NULL without memory.
 */
AUTH *nasd_auth_create(const nasd_shown_capability *shown, const uint8_t own_key[NASD_KEY_BYTES],
                       uint32_t protection);

/* Says what the next call is: the digest covers its procedure, and its nonce must be fresh. */
void nasd_auth_prepare(AUTH *auth, uint32_t procedure, nasd_nonce nonce);

/* Whether the last reply had a digest that was right. With NO_PROTECTION none has. */
int nasd_auth_reply_was_proved(const AUTH *auth);

#endif
