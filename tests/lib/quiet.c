/* SPDX-License-Identifier: BSD-3-Clause */
// See quiet.h. Owns the watched thread and the stand-ins; they count on that thread only.
#include "quiet.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#define EXPORT __attribute__((visibility("default")))
#define RAW __attribute__((no_sanitize("address", "thread", "undefined")))

static __thread bool watched;
static _Atomic uint64_t count[QUIET_COUNT];
static atomic_int first_syscall = -1;

RAW static void note(enum quiet_what what)
{
	if (watched)
		atomic_fetch_add_explicit(&count[what], 1, memory_order_relaxed);
}

// --- allocation ---------------------------------------------------------------------------------------

#ifdef SANITIZED
// The sanitizers' allocator says itself what it is asked.
int __sanitizer_install_malloc_and_free_hooks(
	void (*on_malloc)(const volatile void *, size_t), void (*on_free)(const volatile void *));

RAW static void on_malloc(const volatile void *p, size_t n)
{
	note(QUIET_ALLOC);
}

RAW static void on_free(const volatile void *p)
{
	note(QUIET_FREE);
}

static void watch_allocator(void)
{
	if (__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) == 0)
		abort();
}
#else
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

EXPORT void *malloc(size_t n)
{
	note(QUIET_ALLOC);
	return __libc_malloc(n);
}

EXPORT void *calloc(size_t n, size_t size)
{
	note(QUIET_ALLOC);
	return __libc_calloc(n, size);
}

EXPORT void *realloc(void *p, size_t n)
{
	note(QUIET_ALLOC);
	return __libc_realloc(p, n);
}

EXPORT void *aligned_alloc(size_t align, size_t n)
{
	note(QUIET_ALLOC);
	return __libc_memalign(align, n);
}

EXPORT int posix_memalign(void **p, size_t align, size_t n)
{
	note(QUIET_ALLOC);
	*p = __libc_memalign(align, n);
	return *p == NULL ? ENOMEM : 0;
}

EXPORT void free(void *p)
{
	note(QUIET_FREE);
	__libc_free(p);
}

static void watch_allocator(void)
{
}
#endif

// --- locks --------------------------------------------------------------------------------------------

// A stand-in that counts and goes on to the next one of that name.
#define LOCK(name, type) \
	RAW EXPORT int name(type *lock) \
	{ \
		static int (*_Atomic next)(type *); \
		if (next == NULL) \
			next = (int (*)(type *))dlsym(RTLD_NEXT, #name); \
		note(QUIET_LOCK); \
		return next(lock); \
	}

LOCK(pthread_mutex_lock, pthread_mutex_t)
LOCK(pthread_mutex_trylock, pthread_mutex_t)
LOCK(pthread_mutex_unlock, pthread_mutex_t)
LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)
LOCK(pthread_spin_lock, pthread_spinlock_t)

// --- system calls -------------------------------------------------------------------------------------

// futex(word, op, value, no timeout): the one place of the watched thread that may enter the kernel, by
// the address after its `syscall`.
long quiet_futex(_Atomic uint32_t *word, int op, uint32_t value, const void *timeout);
extern const char quiet_futex_return[];
__asm__(".text\n"
	".globl quiet_futex\n"
	".hidden quiet_futex\n"
	".type quiet_futex, @function\n"
	"quiet_futex:\n"
	"	mov %rcx, %r10\n"
	"	mov $202, %eax\n"
	"	syscall\n"
	".globl quiet_futex_return\n"
	".hidden quiet_futex_return\n"
	"quiet_futex_return:\n"
	"	ret\n"
	".size quiet_futex, . - quiet_futex\n");

RAW static void on_syscall(int sig, siginfo_t *info, void *context)
{
	int none = -1;

	(void)sig;
	atomic_fetch_add_explicit(&count[QUIET_SYSCALL], 1, memory_order_relaxed);
	atomic_compare_exchange_strong(&first_syscall, &none, info->si_syscall);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
}

static void filter_syscalls(void)
{
	const uint64_t place = (uint64_t)(uintptr_t)quiet_futex_return;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 4, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			offsetof(struct seccomp_data, instruction_pointer)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)place, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			offsetof(struct seccomp_data, instruction_pointer) + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(place >> 32), 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	const struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
		perror("quiet: a system call filter");
		abort();
	}
}

bool quiet_counts_syscalls(void)
{
#ifdef SANITIZED
	return false;
#else
	return true;
#endif
}

// --- the thread ---------------------------------------------------------------------------------------

static struct {
	_Atomic uint32_t turn;  // odd: the watched thread's, even: the caller's
	void (*fn)(void *ctx);
	void *ctx;
} job;

static void wait_for(uint32_t turn)
{
	uint32_t seen;

	while ((seen = atomic_load_explicit(&job.turn, memory_order_acquire)) != turn)
		quiet_futex(&job.turn, FUTEX_WAIT_PRIVATE, seen, NULL);
}

static void hand_on(uint32_t turn)
{
	atomic_store_explicit(&job.turn, turn, memory_order_release);
	quiet_futex(&job.turn, FUTEX_WAKE_PRIVATE, 1, NULL);
}

static void *thread_main(void *arg)
{
	uint32_t turn = 1;

	(void)arg;
	job.fn(job.ctx);
	if (quiet_counts_syscalls())
		filter_syscalls();
	for (;; turn += 2) {
		hand_on(turn + 1);
		wait_for(turn + 2);
		watched = true;
		job.fn(job.ctx);
		watched = false;
	}
	return NULL;
}

void quiet_run(void (*fn)(void *ctx), void *ctx)
{
	const uint32_t turn = atomic_load_explicit(&job.turn, memory_order_relaxed);

	job.fn = fn;
	job.ctx = ctx;
	hand_on(turn + 1);
	wait_for(turn + 2);
}

void quiet_start(void (*once)(void *ctx), void *ctx)
{
	struct sigaction action = {.sa_sigaction = on_syscall, .sa_flags = SA_SIGINFO};
	pthread_t thread;

	watch_allocator();
	if (sigaction(SIGSYS, &action, NULL) != 0)
		abort();
	job.fn = once;
	job.ctx = ctx;
	atomic_store(&job.turn, 1);
	if (pthread_create(&thread, NULL, thread_main, NULL) != 0)
		abort();
	wait_for(2);
}

void quiet_counts(struct quiet_counts *counts)
{
	for (uint32_t i = 0; i < QUIET_COUNT; i++)
		counts->n[i] = atomic_load(&count[i]);
	counts->syscall = atomic_load(&first_syscall);
}
