#include "detail.h"

static const char *const states[] = {
    [TRAFFIC_PENDING] = "pending",       [TRAFFIC_IN_FLIGHT] = "in flight",
    [TRAFFIC_DECODED] = "decoded",       [TRAFFIC_VERIFIED] = "verified",
    [TRAFFIC_MISMATCHED] = "mismatched", [TRAFFIC_FAILED] = "failed",
};

/* What happened before the first request could come, as nothing does, would be 0. */
static json_t *moment(const struct traffic *t, hlg_time at)
{
    return at == 0 ? json_null() : json_integer((json_int_t)(at > t->begun ? at - t->begun : 0));
}

/* A failed allocation within makes json_pack() fail in turn, by the NULL that it is handed. */
static json_t *make_request(const struct traffic *t, uint32_t number)
{
    const struct traffic_request *request = &t->requests[number];
    const struct workload_request *work = &t->workload.requests[number];
    return json_pack(
        "{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "number", (json_int_t)number, "state", states[request->state], "prefill_node",
        (json_int_t)request->prefill, "decode_node", (json_int_t)request->member, "prompt_tokens",
        (json_int_t)work->prompt_tokens, "output_tokens", (json_int_t)work->output_count, "bytes",
        (json_int_t)request->bytes, "pieces", (json_int_t)request->pieces_counted, "submitted_ns",
        moment(t, request->submitted), "asked_ns", moment(t, request->asked), "accepted_ns",
        moment(t, request->accepted), "forward_end_ns", moment(t, request->forward_end),
        "first_piece_ns", moment(t, request->first_piece), "last_piece_ns",
        moment(t, request->last_piece), "ready_ns", moment(t, request->ready), "first_token_ns",
        moment(t, request->first_token));
}

static json_t *make_step(const struct traffic *t, const struct traffic_step *step)
{
    const bool decode = step->member >= t->fleet.prefill_count;
    const uint32_t node = decode ? step->member - t->fleet.prefill_count : step->member;
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:o, s:o}", "kind", decode ? "decode" : "prefill",
                     "node", (json_int_t)node, "sequences", (json_int_t)step->sequences, "tokens",
                     (json_int_t)step->tokens, "context",
                     (double)step->context_sum / (double)step->tokens, "begun_ns",
                     moment(t, step->begun), "ended_ns", moment(t, step->ended));
}

int detail_add(const struct traffic *t, json_t *root)
{
    json_t *requests = json_array();
    json_t *steps = json_array();
    bool good = requests != NULL && steps != NULL;
    for (uint32_t i = 0; i < t->workload.count && good; i++) {
        good = json_array_append_new(requests, make_request(t, i)) == 0;
    }
    for (uint32_t i = 0; i < t->step_count && good; i++) {
        good = json_array_append_new(steps, make_step(t, &t->steps[i])) == 0;
    }
    json_t *detail = good ? json_pack("{s:O, s:O}", "requests", requests, "steps", steps) : NULL;
    json_decref(requests);
    json_decref(steps);
    return json_object_set_new(root, "detail", detail) == 0 ? 0 : -HLG_ENOMEM;
}
