/* SPDX-License-Identifier: BSD-3-Clause */
#include "control_world.h"

int main(void)
{
	return 0;
}
