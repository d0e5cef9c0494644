/* SPDX-License-Identifier: BSD-3-Clause */
// The demo's gateway: sessions for lists of UIDs, a log line for every delivery.
//   demo_gateway NODE_IP PORT CLIENT_ID DELIVERY_LOG [KEY_FILE KEY_ID]
// Commands: open UIDFILE | receipts on|off | keys FILE ID [FILE ID] | stats | flush | quit
// Log line: <ns received> <message id> <channel type> <channel> <uid> <stamp> <late>
#include "demo_common.h"

int main(int argc, char **argv)
{
	static struct demo demo;
	const int rc = demo_open(&demo, argc, argv, NULL);

	return rc != 0 ? rc : demo_run(&demo);
}
