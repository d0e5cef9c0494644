/* SPDX-License-Identifier: BSD-3-Clause */
// Thread roles, checked by clang's -Wthread-safety; empty under gcc. A function bound to a thread
// carries one of WORKER_ONLY, CONTROL_ONLY, META_ONLY; data carries GUARDED_BY(role_...). A thread
// takes its role once at start with role_take_*() and keeps it for life.
#pragma once

#if defined(__clang__)
#define ROLE_ATTR(x) __attribute__((x))
#else
#define ROLE_ATTR(x)
#endif

struct ROLE_ATTR(capability("role")) thread_role {
	char unused;
};

extern struct thread_role role_worker;  // a polling core
extern struct thread_role role_control;  // the control core of the fast process
extern struct thread_role role_meta;  // the event loop of the meta process

#define WORKER_ONLY ROLE_ATTR(requires_capability(role_worker))
#define CONTROL_ONLY ROLE_ATTR(requires_capability(role_control))
#define META_ONLY ROLE_ATTR(requires_capability(role_meta))
#define GUARDED_BY(role) ROLE_ATTR(guarded_by(role))

// Take and leave a role. Context: the thread's main function; a simulator that steps every role from
// one thread takes one after the other. The checker sees them, the machine does nothing.
static inline void role_take_worker(void) ROLE_ATTR(acquire_capability(role_worker))
	ROLE_ATTR(no_thread_safety_analysis);
static inline void role_drop_worker(void) ROLE_ATTR(release_capability(role_worker))
	ROLE_ATTR(no_thread_safety_analysis);
static inline void role_take_control(void) ROLE_ATTR(acquire_capability(role_control))
	ROLE_ATTR(no_thread_safety_analysis);
static inline void role_drop_control(void) ROLE_ATTR(release_capability(role_control))
	ROLE_ATTR(no_thread_safety_analysis);
static inline void role_take_meta(void) ROLE_ATTR(acquire_capability(role_meta))
	ROLE_ATTR(no_thread_safety_analysis);
static inline void role_drop_meta(void) ROLE_ATTR(release_capability(role_meta))
	ROLE_ATTR(no_thread_safety_analysis);

static inline void role_take_worker(void)
{
}
static inline void role_drop_worker(void)
{
}
static inline void role_take_control(void)
{
}
static inline void role_drop_control(void)
{
}
static inline void role_take_meta(void)
{
}
static inline void role_drop_meta(void)
{
}
