/* A paced completion server: every chunk is due at a known time, so that a client's own error shows.
 *
 *   cc -O2 -std=c11 -o paced_server paced_server.c
 *   ./paced_server --port 8000 --ttft-ms 50 --gap-ms 10 --tokens 64
 *
 * One thread, epoll, no model. Chunk i of a reply is due ttft + i * gap after the request's last
 * byte was read; due times are absolute, so a late chunk doesn't delay the next. What falls late is
 * counted, and every chunk is a write of its own also when several are due. The head of a reply goes
 * out when the request is there, as uvicorn does it for vLLM.
 *
 *   POST /v1/completions       as vLLM 0.32 streams it: token_ids and a trailing usage if asked for
 *   POST /v1/chat/completions  the same tokens as deltas
 *   GET  /health /version /v1/models /metrics
 *   GET  /stats                what the server saw since the last POST /stats/reset, as JSON
 *
 * On stdout it says "busy T" when the first request is in flight and "idle T" when the last has ended
 * (T in seconds of CLOCK_MONOTONIC): the moments to read a client's CPU time.
 * A request gets max_tokens (or max_completion_tokens) tokens, at most --tokens. Without
 * "stream": true the whole reply comes in one piece when its last token is due. The JSON of requests
 * isn't parsed but searched for these few keys.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_A_WAIT = 64, FIRST_TOKEN_ID = 1000, LEVELS = 1 << 16 };

#define REPLY_ID "8f14e45fceea167a5a36dedd4bea2543"

/* Kinds of streams; each has its chunks rendered once, at the start. */
enum kind { COMPLETION, COMPLETION_IDS, CHAT, KINDS };

struct bytes {
    char *data;
    size_t size, room;
};

/* A connection and the one reply that is open on it. */
struct connection {
    int fd;
    struct bytes in, unsent;
    bool close_after, open, stream, usage;
    enum kind kind;
    int tokens, next_token, prompt_tokens;
    int64_t arrived_ns, due_ns;
    size_t heap_place;
};

/* Milliseconds seen, kept whole: a percentile is then exact. */
struct samples {
    float *ms;
    size_t size, room;
};

static struct {
    int port, tokens;
    int64_t ttft_ns, gap_ns;
    bool early_head;
} options = {8000, 64, 50000000, 10000000, true};

static struct {
    struct samples first, all;
    int64_t since_ns, level_since_ns;
    int64_t level_ns[LEVELS]; /* time spent with just so many requests in flight */
    double cpu_s;
    long requests, finished, cut, chunks, blocked, connections;
    int in_flight, max_in_flight;
} seen;

static struct bytes *chunks[KINDS]; /* chunk of each token, and the same with finish_reason after it */
static struct connection **heap;
static size_t heap_size, heap_room;
static int poller;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void *grown(void *data, size_t size) {
    void *more = realloc(data, size);
    if (!more) die("realloc");
    return more;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static double cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void append(struct bytes *to, const char *data, size_t size) {
    if (to->size + size > to->room) {
        to->room = 2 * (to->size + size);
        to->data = grown(to->data, to->room);
    }
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

__attribute__((format(printf, 2, 3))) static void append_text(struct bytes *to, const char *format, ...) {
    va_list arguments;
    char *text;
    va_start(arguments, format);
    int size = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (size < 0) die("vasprintf");
    append(to, text, size);
    free(text);
}

/* ---- what was seen ---- */

static void add_sample(struct samples *to, int64_t ns) {
    if (to->size == to->room) {
        to->room = to->room ? 2 * to->room : 4096;
        to->ms = grown(to->ms, to->room * sizeof *to->ms);
    }
    to->ms[to->size++] = ns / 1e6f;
}

static void change_in_flight(int by, int64_t now) {
    seen.level_ns[seen.in_flight] += now - seen.level_since_ns;
    seen.level_since_ns = now;
    seen.in_flight += by;
    if (seen.in_flight > seen.max_in_flight) seen.max_in_flight = seen.in_flight;
    if (by && seen.in_flight == (by > 0)) { /* from or to nothing in flight */
        printf("%s %.6f\n", by > 0 ? "busy" : "idle", now / 1e9);
        fflush(stdout);
    }
}

static void reset_seen(void) {
    int in_flight = seen.in_flight;
    free(seen.first.ms);
    free(seen.all.ms);
    memset(&seen, 0, sizeof seen);
    seen.since_ns = seen.level_since_ns = now_ns();
    seen.cpu_s = cpu_s();
    seen.in_flight = seen.max_in_flight = in_flight;
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Nearest rank: the smallest value that at least this share of all does not exceed. */
static float quantile(const float *sorted, size_t size, double share) {
    size_t rank = (size_t)(share * size);
    return sorted[rank < share * size ? rank : rank - (rank > 0)];
}

static void append_samples(struct bytes *to, const char *name, const struct samples *from) {
    double sum = 0;
    if (!from->size) {
        append_text(to, "\"%s\":null", name);
        return;
    }
    float *sorted = grown(NULL, from->size * sizeof *sorted);
    memcpy(sorted, from->ms, from->size * sizeof *sorted);
    qsort(sorted, from->size, sizeof *sorted, by_size);
    for (size_t i = 0; i < from->size; i++) sum += sorted[i];
    append_text(to, "\"%s\":{\"mean\":%.4f,\"p50\":%.4f,\"p99\":%.4f,\"max\":%.4f}", name,
                sum / from->size, quantile(sorted, from->size, 0.5), quantile(sorted, from->size, 0.99),
                sorted[from->size - 1]);
    free(sorted);
}

static void append_stats(struct bytes *to) {
    int64_t busy_ns = 0, half_ns = 0;
    double weighted = 0;
    int median = 0;
    change_in_flight(0, now_ns());
    for (int level = 1; level <= seen.max_in_flight; level++) {
        busy_ns += seen.level_ns[level];
        weighted += (double)level * seen.level_ns[level];
    }
    for (int level = 1; level <= seen.max_in_flight && 2 * half_ns < busy_ns; level++) {
        half_ns += seen.level_ns[level];
        median = level;
    }
    append_text(to,
                "{\"server\":\"paced_server\",\"requests\":%ld,\"finished\":%ld,\"cut\":%ld,"
                "\"connections\":%ld,\"chunks\":%ld,\"blocked_writes\":%ld,",
                seen.requests, seen.finished, seen.cut, seen.connections, seen.chunks, seen.blocked);
    append_text(to,
                "\"in_flight\":{\"now\":%d,\"max\":%d,\"busy_mean\":%.2f,\"busy_p50\":%d},"
                "\"busy_s\":%.4f,\"span_s\":%.4f,\"cpu_s\":%.4f,",
                seen.in_flight, seen.max_in_flight, busy_ns ? weighted / busy_ns : 0, median,
                busy_ns / 1e9, (now_ns() - seen.since_ns) / 1e9, cpu_s() - seen.cpu_s);
    append_samples(to, "first_late_ms", &seen.first);
    append(to, ",", 1);
    append_samples(to, "late_ms", &seen.all);
    append(to, "}", 1);
}

/* ---- replies by due time: a binary heap, the earliest at place 0 ---- */

static void heap_put(struct connection *c, size_t place) {
    heap[place] = c;
    c->heap_place = place;
}

static void heap_settle(size_t place) {
    struct connection *c = heap[place];
    while (place && c->due_ns < heap[(place - 1) / 2]->due_ns) {
        heap_put(heap[(place - 1) / 2], place);
        place = (place - 1) / 2;
    }
    for (size_t child; (child = 2 * place + 1) < heap_size; place = child) {
        if (child + 1 < heap_size && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
        if (heap[child]->due_ns >= c->due_ns) break;
        heap_put(heap[child], place);
    }
    heap_put(c, place);
}

static void heap_add(struct connection *c) {
    if (heap_size == heap_room) {
        heap_room = heap_room ? 2 * heap_room : 1024;
        heap = grown(heap, heap_room * sizeof *heap);
    }
    heap[heap_size++] = c;
    heap_settle(heap_size - 1);
}

static void heap_remove(struct connection *c) {
    size_t place = c->heap_place;
    struct connection *last = heap[--heap_size];
    if (last != c) {
        heap_put(last, place);
        heap_settle(place);
    }
}

/* ---- connections ---- */

static void end_reply(struct connection *c, bool finished) {
    c->open = false;
    heap_remove(c);
    change_in_flight(-1, now_ns());
    *(finished ? &seen.finished : &seen.cut) += 1;
}

static void close_connection(struct connection *c) {
    if (c->open) end_reply(c, false);
    close(c->fd);
    free(c->in.data);
    free(c->unsent.data);
    free(c);
}

static void watch(struct connection *c, int operation, bool writable) {
    struct epoll_event e = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, operation, c->fd, &e)) die("epoll_ctl");
}

/* Send, or keep what the socket doesn't take. A broken connection shows at the next read. */
static void send_bytes(struct connection *c, const char *data, size_t size) {
    if (!c->unsent.size) {
        ssize_t sent = send(c->fd, data, size, MSG_NOSIGNAL);
        if (sent == (ssize_t)size) return;
        if (sent < 0 && errno != EAGAIN) return;
        if (sent > 0) data += sent, size -= sent;
        watch(c, EPOLL_CTL_MOD, true);
        seen.blocked++;
    }
    append(&c->unsent, data, size);
}

static void send_unsent(struct connection *c) {
    ssize_t sent = send(c->fd, c->unsent.data, c->unsent.size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) sent = c->unsent.size; /* broken: the next read shows it */
    c->unsent.size -= sent;
    memmove(c->unsent.data, c->unsent.data + sent, c->unsent.size);
    if (c->unsent.size) return;
    watch(c, EPOLL_CTL_MOD, false);
    if (c->close_after && !c->open) shutdown(c->fd, SHUT_WR);
}

static void send_whole(struct connection *c, const char *status, const char *type, struct bytes body) {
    struct bytes out = {0};
    append_text(&out, "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", status, type,
                body.size);
    append(&out, body.data, body.size);
    send_bytes(c, out.data, out.size);
    free(out.data);
}

/* ---- streams ---- */

static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\nserver: paced_server\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    "transfer-encoding: chunked\r\n\r\n";

/* One SSE event as one piece of HTTP's chunked framing. */
static void append_event(struct bytes *to, const char *json) {
    append_text(to, "%zx\r\ndata: %s\n\n\r\n", strlen(json) + 8, json);
}

static struct bytes token_chunk(enum kind kind, int token, bool last) {
    const char *reason = last ? "\"length\"" : "null";
    char letter = 'a' + token % 26; /* with its space one token to most tokenizers */
    struct bytes json = {0}, framed = {0};
    char ids[32] = "null";
    if (kind == COMPLETION_IDS) snprintf(ids, sizeof ids, "[%d]", FIRST_TOKEN_ID + token);
    if (kind == CHAT)
        append_text(&json,
                    "{\"id\":\"chatcmpl-" REPLY_ID "\",\"object\":\"chat.completion.chunk\","
                    "\"created\":1764000000,\"model\":\"paced\",\"choices\":[{\"index\":0,\"delta\":"
                    "{%s\"content\":\" %c\"},\"logprobs\":null,\"finish_reason\":%s}]}",
                    token ? "" : "\"role\":\"assistant\",", letter, reason);
    else
        append_text(&json,
                    "{\"id\":\"cmpl-" REPLY_ID "\",\"object\":\"text_completion\","
                    "\"created\":1764000000,\"model\":\"paced\",\"choices\":[{\"index\":0,"
                    "\"text\":\" %c\",\"logprobs\":null,\"finish_reason\":%s,\"stop_reason\":null,"
                    "\"prompt_token_ids\":null,\"token_ids\":%s}]}",
                    letter, reason, ids);
    append(&json, "", 1);
    append_event(&framed, json.data);
    free(json.data);
    return framed;
}

static void render_chunks(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        chunks[kind] = grown(NULL, 2 * options.tokens * sizeof **chunks);
        for (int token = 0; token < options.tokens; token++) {
            chunks[kind][token] = token_chunk(kind, token, false);
            chunks[kind][options.tokens + token] = token_chunk(kind, token, true);
        }
    }
}

static void append_usage(struct bytes *to, const struct connection *c) {
    append_text(to, "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}",
                c->prompt_tokens, c->tokens, c->prompt_tokens + c->tokens);
}

static const char *object_name(const struct connection *c) {
    if (c->kind == CHAT) return c->stream ? "chat.completion.chunk" : "chat.completion";
    return "text_completion";
}

static void send_end_of_stream(struct connection *c) {
    struct bytes out = {0};
    if (c->usage) {
        struct bytes json = {0};
        append_text(&json,
                    "{\"id\":\"cmpl-" REPLY_ID "\",\"object\":\"%s\",\"created\":1764000000,"
                    "\"model\":\"paced\",\"choices\":[],",
                    object_name(c));
        append_usage(&json, c);
        append(&json, "}", 2); /* with its NUL */
        append_event(&out, json.data);
        free(json.data);
    }
    append_event(&out, "[DONE]");
    append_text(&out, "0\r\n\r\n");
    send_bytes(c, out.data, out.size);
    free(out.data);
}

static void send_whole_reply(struct connection *c) {
    struct bytes text = {0}, body = {0};
    for (int token = 0; token < c->tokens; token++) append_text(&text, " %c", 'a' + token % 26);
    append(&text, "", 1);
    append_text(&body, "{\"id\":\"cmpl-" REPLY_ID "\",\"object\":\"%s\",\"created\":1764000000,"
                "\"model\":\"paced\",\"choices\":[{\"index\":0,", object_name(c));
    if (c->kind == CHAT)
        append_text(&body, "\"message\":{\"role\":\"assistant\",\"content\":\"%s\"}", text.data);
    else
        append_text(&body, "\"text\":\"%s\"", text.data);
    append_text(&body, ",\"logprobs\":null,\"finish_reason\":\"length\"}],");
    append_usage(&body, c);
    append(&body, "}", 1);
    send_whole(c, "200 OK", "application/json", body);
    free(text.data);
    free(body.data);
}

static void read_requests(struct connection *c);

/* Send what is due on one connection: one chunk, and the end after the last. */
static void send_due(struct connection *c) {
    int token = c->next_token++;
    bool last = c->next_token == c->tokens;
    if (c->stream) {
        if (!token && !options.early_head) send_bytes(c, STREAM_HEAD, sizeof STREAM_HEAD - 1);
        const struct bytes *chunk = &chunks[c->kind][(last ? options.tokens : 0) + token];
        send_bytes(c, chunk->data, chunk->size);
    } else
        send_whole_reply(c);
    int64_t late_ns = now_ns() - c->due_ns; /* with the send in it: loopback delivers within it */
    add_sample(&seen.all, late_ns);
    if (!token) add_sample(&seen.first, late_ns);
    seen.chunks++;
    if (!last && c->stream) {
        c->due_ns += options.gap_ns;
        heap_settle(c->heap_place);
        return;
    }
    if (c->stream) send_end_of_stream(c);
    end_reply(c, true);
    if (c->close_after && !c->unsent.size)
        shutdown(c->fd, SHUT_WR); /* the reader then closes */
    else
        read_requests(c);
}

/* ---- requests ---- */

static const char *after_key(const struct bytes *body, const char *key) {
    const char *at = memmem(body->data, body->size, key, strlen(key)), *end = body->data + body->size;
    if (!at) return NULL;
    for (at += strlen(key); at < end && (*at == ' ' || *at == ':'); at++) {}
    return at < end ? at : NULL;
}

static bool is_true(const struct bytes *body, const char *key) {
    const char *value = after_key(body, key);
    return value && *value == 't';
}

/* Ids of a list, words of a text. */
static int count_prompt_tokens(const struct bytes *body) {
    const char *at = after_key(body, "\"prompt\""), *end = body->data + body->size;
    if (!at) at = after_key(body, "\"content\"");
    if (!at) return 0;
    char separator = *at == '[' ? ',' : ' ', stop = *at == '[' ? ']' : '"';
    int count = 1;
    while (++at < end && *at != stop) count += *at == separator;
    return count;
}

static void start_reply(struct connection *c, const struct bytes *body, bool chat, int64_t now) {
    const char *asked = after_key(body, "\"max_tokens\"");
    if (!asked || *asked == 'n') asked = after_key(body, "\"max_completion_tokens\"");
    int tokens = asked && *asked != 'n' ? atoi(asked) : options.tokens;
    c->tokens = tokens < 1 ? 1 : tokens > options.tokens ? options.tokens : tokens;
    c->stream = is_true(body, "\"stream\"");
    c->usage = is_true(body, "\"include_usage\"");
    c->kind = chat ? CHAT : is_true(body, "\"return_token_ids\"") ? COMPLETION_IDS : COMPLETION;
    c->prompt_tokens = count_prompt_tokens(body);
    c->next_token = c->stream ? 0 : c->tokens - 1;
    c->due_ns = now + options.ttft_ns + c->next_token * options.gap_ns;
    c->open = true;
    heap_add(c);
    seen.requests++;
    change_in_flight(1, now);
    if (c->stream && options.early_head) send_bytes(c, STREAM_HEAD, sizeof STREAM_HEAD - 1);
}

static void answer(struct connection *c, const char *target, const struct bytes *body, int64_t now) {
    struct bytes out = {0};
    const char *status = "200 OK", *type = "application/json";
    if (!strcmp(target, "POST /v1/completions") || !strcmp(target, "POST /v1/chat/completions")) {
        start_reply(c, body, strstr(target, "chat") != NULL, now);
        return;
    }
    if (!strcmp(target, "GET /stats"))
        append_stats(&out);
    else if (!strcmp(target, "POST /stats/reset")) {
        reset_seen();
        append_text(&out, "{}");
    } else if (!strcmp(target, "GET /v1/models"))
        append_text(&out, "{\"object\":\"list\",\"data\":[{\"id\":\"paced\",\"object\":\"model\","
                          "\"created\":1764000000,\"owned_by\":\"paced_server\",\"root\":\"paced\","
                          "\"max_model_len\":131072}]}");
    else if (!strcmp(target, "GET /version"))
        append_text(&out, "{\"version\":\"paced_server, not an engine\"}");
    else if (!strcmp(target, "GET /metrics")) {
        type = "text/plain; version=0.0.4; charset=utf-8";
        append_text(&out, "# TYPE paced_server_chunks counter\npaced_server_chunks_total %ld\n",
                    seen.chunks);
    } else if (!strcmp(target, "GET /health"))
        append_text(&out, "{}");
    else {
        status = "404 Not Found";
        append_text(&out, "{\"error\":{\"message\":\"paced_server has no %s\"}}", target);
    }
    send_whole(c, status, type, out);
    free(out.data);
}

/* Value of a header in a head that ends with a blank line, or NULL. */
static const char *header(const char *head, const char *name) {
    const char *at = strcasestr(head, name);
    return at ? at + strlen(name) : NULL;
}

/* Answer the next request if it is there whole and no reply is open. */
static void read_requests(struct connection *c) {
    while (!c->open && c->in.size) {
        char *end = memmem(c->in.data, c->in.size, "\r\n\r\n", 4);
        if (!end) return;
        size_t head_size = end - c->in.data + 4;
        end[2] = 0; /* the head is text now; the body follows */
        const char *length = header(c->in.data, "\r\ncontent-length:");
        const char *connection = header(c->in.data, "\r\nconnection:");
        size_t body_size = length ? strtoul(length, NULL, 10) : 0;
        if (c->in.size < head_size + body_size) {
            end[2] = '\r';
            return;
        }
        char method[16] = "", path[512] = "", target[544];
        sscanf(c->in.data, "%15s %511[^ ?]", method, path);
        snprintf(target, sizeof target, "%s %s", method, path);
        c->close_after = connection && !strncasecmp(connection + strspn(connection, " "), "close", 5);
        answer(c, target, &(struct bytes){c->in.data + head_size, body_size, 0}, now_ns());
        c->in.size -= head_size + body_size;
        memmove(c->in.data, c->in.data + head_size + body_size, c->in.size);
        if (c->close_after && !c->open) shutdown(c->fd, SHUT_WR);
    }
}

static void on_readable(struct connection *c) {
    char data[65536];
    ssize_t size = recv(c->fd, data, sizeof data, 0);
    if (size > 0) {
        append(&c->in, data, size);
        read_requests(c);
    } else if (size == 0 || errno != EAGAIN)
        close_connection(c);
}

static void accept_all(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct connection *c = grown(NULL, sizeof *c);
        *c = (struct connection){.fd = fd};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(c, EPOLL_CTL_ADD, false);
        seen.connections++;
    }
    if (errno != EAGAIN && errno != ECONNABORTED) die("accept4");
}

/* ---- start ---- */

static int listen_on(int *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(*port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, size)) die("bind");
    if (listen(fd, 8192)) die("listen");
    if (getsockname(fd, (struct sockaddr *)&address, &size)) die("getsockname");
    *port = ntohs(address.sin_port);
    return fd;
}

static void read_options(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        char *end;
        double number = strtod(value, &end);
        if (end == value || *end || number < 0) goto usage;
        if (!strcmp(argv[i], "--port")) options.port = number;
        else if (!strcmp(argv[i], "--ttft-ms")) options.ttft_ns = number * 1e6;
        else if (!strcmp(argv[i], "--gap-ms")) options.gap_ns = number * 1e6;
        else if (!strcmp(argv[i], "--tokens") && number >= 1) options.tokens = number;
        else if (!strcmp(argv[i], "--early-head")) options.early_head = number != 0;
        else goto usage;
    }
    return;
usage:
    fprintf(stderr, "usage: %s [--port N (8000; 0 takes a free one)] [--ttft-ms X (50)] [--gap-ms X (10)]\n"
                    "       [--tokens N (64, most of a reply)] [--early-head 0|1 (1)]\n", argv[0]);
    exit(2);
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    prctl(PR_SET_TIMERSLACK, 1UL); /* the usual slack is 50 us */
    render_chunks();
    reset_seen();
    int listener = listen_on(&options.port);
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS_A_WAIT];
    if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listener, &e)) die("epoll");
    printf("paced_server listens on 127.0.0.1:%d\n", options.port);
    fflush(stdout);
    for (;;) {
        int64_t now = now_ns();
        /* At most so many before the sockets are looked at again: both get their turn. */
        for (int sent = 0; sent < EVENTS_A_WAIT && heap_size && heap[0]->due_ns <= now; sent++) {
            send_due(heap[0]);
            now = now_ns();
        }
        int64_t wait_ns = heap_size ? heap[0]->due_ns - now : INT64_C(3600000000000);
        if (wait_ns < 0) wait_ns = 0;
        struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
        int ready = epoll_pwait2(poller, events, EVENTS_A_WAIT, &wait, NULL);
        if (ready < 0 && errno != EINTR) die("epoll_pwait2");
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c)
                accept_all(listener);
            else if (events[i].events & EPOLLOUT)
                send_unsent(c);
            else
                on_readable(c);
        }
    }
}
