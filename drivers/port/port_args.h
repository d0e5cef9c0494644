/* SPDX-License-Identifier: BSD-3-Clause */
// Text made from the configuration: EAL's arguments, the cores of the workers, a device's name and
// options. Strings in, strings out; no EAL. Main thread.
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"

#define PORT_ARGS_MAX 64u
#define PORT_ARGS_BYTES 4096u

struct port_args {
	int argc;
	char *argv[PORT_ARGS_MAX + 1];
	uint32_t used;
	char text[PORT_ARGS_BYTES];  // what argv points into
	char line[PORT_ARGS_BYTES];  // the same, for people
};

struct port_device {
	bool pci;
	bool af_packet;
	char name[64];
	char options[256];
	uint32_t frame_bytes;  // af_packet: bytes of a slot of its kernel rings; 0 elsewhere
};

// EAL's core map: lcore 0 is the control core and floats over `allowed`; worker w is lcore w + 1. With at
// least as many CPUs named as workers each worker has its own, else all float over those named; "auto"
// or "": over all allowed. Returns: 0; -EINVAL with `why`.
int port_args_lcores(const char *lcores, uint32_t workers, const cpu_set_t *allowed, char *out,
	size_t cap, const char **why);

// All of EAL's arguments. Returns: 0; -EINVAL with `why`.
int port_args_eal(const struct conf *conf, const cpu_set_t *allowed, struct port_args *args,
	const char **why);

// Splits the device of the configuration and completes the options of af_packet: a queue pair per worker,
// ring slots that hold the MTU. Returns: 0; -EINVAL with `why`.
int port_args_device(const char *device, uint32_t workers, uint16_t mtu, struct port_device *out,
	const char **why);

// Formats a reason that lives until the next failure of this thread.
const char *port_why(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
