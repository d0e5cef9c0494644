/* SPDX-License-Identifier: BSD-3-Clause */
// Requests and their answers: queued here, written by ctl_server_process. Run by the server's thread.
#include "ctl_pvt.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ctl_kick(struct ctl_server *server)
{
	const uint64_t one = 1;

	if (server->kicked)
		return;
	server->kicked = true;
	// Cannot fail: the counter is at most 1 while `kicked` guards it.
	(void)!write(server->kick_fd, &one, sizeof(one));
}

void ctl_request_free(struct ctl_request *request)
{
	json_decref(request->id);
	free(request->answer);
	free(request);
}

struct ctl_request *ctl_request_create(struct ctl_client *client, json_t *id)
{
	struct ctl_request *request = calloc(1, sizeof(*request));

	if (request == NULL) {
		client->dead = true;
		return NULL;
	}
	request->client = client;
	request->id = json_incref(id);
	if (client->last != NULL)
		client->last->next = request;
	else
		client->first = request;
	client->last = request;
	client->open++;
	return request;
}

static bool out_append(struct ctl_client *client, const char *bytes, size_t len)
{
	if (client->out_len + len > client->out_cap) {
		size_t cap = client->out_cap == 0 ? 4096 : client->out_cap;
		char *grown;

		while (cap < client->out_len + len)
			cap *= 2;
		grown = realloc(client->out, cap);
		if (grown == NULL)
			return false;
		client->out = grown;
		client->out_cap = cap;
	}
	memcpy(client->out + client->out_len, bytes, len);
	client->out_len += len;
	return true;
}

void ctl_collect(struct ctl_client *client)
{
	while (client->first != NULL && client->first->answer != NULL) {
		struct ctl_request *request = client->first;

		if (!client->hung_up && !client->dead &&
			!out_append(client, request->answer, request->answer_len))
			client->dead = true;
		client->held_bytes -= request->answer_len;
		client->first = request->next;
		if (client->first == NULL)
			client->last = NULL;
		client->open--;
		ctl_request_free(request);
	}
}

// Owns: takes over `answer`.
static void request_answer(struct ctl_request *request, json_t *answer)
{
	struct ctl_client *client = request->client;
	size_t len;
	char *text;

	if (client == NULL) {
		json_decref(answer);
		ctl_request_free(request);
		return;
	}
	assert(request->answer == NULL);
	text = answer == NULL ? NULL : json_dumps(answer, JSON_COMPACT);
	json_decref(answer);
	if (text == NULL)
		text = strdup("{\"ok\":false,\"error\":\"internal\",\"message\":\"no memory\"}");
	if (text != NULL) {
		len = strlen(text);
		text[len] = '\n';  // the terminator is not needed any more
		request->answer = text;
		request->answer_len = len + 1;
		client->held_bytes += len + 1;
	} else {
		client->dead = true;
	}
	ctl_kick(client->server);
}

static json_t *answer_begin(const struct ctl_request *request, bool ok)
{
	json_t *answer = json_object();

	if (answer == NULL)
		return NULL;
	json_object_set_new(answer, "ok", json_boolean(ok));
	if (request->id != NULL)
		json_object_set(answer, "id", request->id);
	return answer;
}

void ctl_reply(struct ctl_request *request, json_t *result)
{
	json_t *answer = answer_begin(request, true);

	if (answer != NULL && result != NULL) {
		assert(json_is_object(result));
		json_object_update(answer, result);
	}
	json_decref(result);
	request_answer(request, answer);
}

void ctl_fail_at(
	struct ctl_request *request, const char *code, const char *message, const char *where)
{
	json_t *answer = answer_begin(request, false);
	json_t *text = json_string(message);

	if (text == NULL)
		text = json_string("message is not UTF-8");
	if (answer != NULL) {
		json_object_set_new(answer, "error", json_string(code));
		json_object_set_new(answer, "message", text);
		if (where != NULL)
			json_object_set_new(answer, "where", json_string(where));
	} else {
		json_decref(text);
	}
	request_answer(request, answer);
}

void ctl_fail(struct ctl_request *request, const char *code, const char *fmt, ...)
{
	char message[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	ctl_fail_at(request, code, message, NULL);
}
