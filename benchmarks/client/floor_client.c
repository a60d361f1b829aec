/* The least that a client can cost: one epoll loop that sends, stamps reads and looks at nothing else.
 *
 *   cc -O2 -std=c11 -o floor_client floor_client.c
 *   ./floor_client --port 8000 --concurrency 1024 --requests 4096 --tokens 64 --prompt-tokens 32
 *
 * Closed loop on so many connections, all opened before the clock starts. A reply's end is found by
 * the last bytes of a read; nothing is parsed or kept but the stamps of reads. Prints JSON: TTFT
 * (first read after the head), gaps between reads of one reply, reads, and its own CPU time.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_A_WAIT = 256 };

static const char END[] = "\r\n0\r\n\r\n", HEAD_END[] = "\r\n\r\n";

struct connection {
    int fd;
    int64_t sent_ns, last_ns; /* last_ns is 0 until the first read with a chunk */
};

static int port = 8000, concurrency = 64, requests = 640, tokens = 64, prompt_tokens = 32;
static char *request;
static size_t request_size;
static double *ttft_ms, *gap_ms;
static size_t ttfts, gaps, reads;
static int sent, finished;

static void die(const char *what) {
    perror(what);
    exit(1);
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

static void render_request(void) {
    char *body;
    size_t body_size;
    FILE *out = open_memstream(&body, &body_size);
    fprintf(out, "{\"model\":\"paced\",\"prompt\":[");
    for (int i = 0; i < prompt_tokens; i++) fprintf(out, "%s%d", i ? "," : "", 5 + i * 7919 % 30000);
    fprintf(out, "],\"stream\":true,\"stream_options\":{\"include_usage\":true},"
                 "\"return_token_ids\":true,\"max_tokens\":%d}", tokens);
    fclose(out);
    int size = asprintf(&request, "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                                  "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                        body_size, body);
    if (size < 0) die("asprintf");
    request_size = size;
    free(body);
}

static void connect_one(struct connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket");
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void send_next(struct connection *c) {
    if (sent == requests) return;
    sent++;
    c->last_ns = 0;
    c->sent_ns = now_ns();
    if (send(c->fd, request, request_size, MSG_NOSIGNAL) != (ssize_t)request_size) die("send");
}

static bool ends_with(const char *data, size_t size, const char *end, size_t end_size) {
    return size >= end_size && !memcmp(data + size - end_size, end, end_size);
}

static void on_readable(struct connection *c) {
    char data[16384];
    ssize_t size = recv(c->fd, data, sizeof data, MSG_DONTWAIT);
    int64_t now = now_ns();
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) die("recv");
    reads++;
    bool head_alone = data[0] == 'H' && ends_with(data, size, HEAD_END, 4) &&
                      memmem(data, size, HEAD_END, 4) == data + size - 4;
    bool end = ends_with(data, size, END, sizeof END - 1);
    /* The trailing usage and [DONE] in a read of their own carry no token. */
    bool token = !head_alone && !(end && !memmem(data, size, "\"index\"", 7));
    if (token) {
        if (!c->last_ns)
            ttft_ms[ttfts++] = (now - c->sent_ns) / 1e6;
        else
            gap_ms[gaps++] = (now - c->last_ns) / 1e6;
        c->last_ns = now;
    }
    if (end) {
        finished++;
        send_next(c);
    }
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_samples(const char *name, double *ms, size_t size) {
    double sum = 0;
    qsort(ms, size, sizeof *ms, by_size);
    for (size_t i = 0; i < size; i++) sum += ms[i];
    if (size)
        printf("\"%s\": {\"mean\": %.4f, \"p50\": %.4f, \"p99\": %.4f, \"max\": %.4f}, ", name,
               sum / size, ms[(size - 1) / 2], ms[(size_t)(0.99 * (size - 1))], ms[size - 1]);
}

int main(int argc, char **argv) {
    const struct { const char *name; int *value; } flags[] = {
        {"--port", &port},     {"--concurrency", &concurrency},     {"--requests", &requests},
        {"--tokens", &tokens}, {"--prompt-tokens", &prompt_tokens},
    };
    for (int i = 1; i < argc; i += 2) {
        size_t f = 0, all = sizeof flags / sizeof *flags;
        while (f < all && strcmp(argv[i], flags[f].name)) f++;
        if (f == all || i + 1 == argc || (*flags[f].value = atoi(argv[i + 1])) < 1) {
            fprintf(stderr, "usage: %s [--port N] [--concurrency N] [--requests N] [--tokens N] "
                            "[--prompt-tokens N]\n", argv[0]);
            return 2;
        }
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    render_request();
    if (concurrency > requests) concurrency = requests;
    struct connection *connections = calloc(concurrency, sizeof *connections);
    ttft_ms = calloc(requests, sizeof *ttft_ms);
    gap_ms = calloc((size_t)requests * (tokens + 2), sizeof *gap_ms);
    int poller = epoll_create1(EPOLL_CLOEXEC);
    if (!connections || !ttft_ms || !gap_ms || poller < 0) die("start");
    for (int i = 0; i < concurrency; i++) {
        connect_one(&connections[i]);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &connections[i]};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, connections[i].fd, &e)) die("epoll_ctl");
    }
    int64_t start_ns = now_ns();
    double start_cpu_s = cpu_s();
    for (int i = 0; i < concurrency; i++) send_next(&connections[i]);
    while (finished < requests) {
        struct epoll_event events[EVENTS_A_WAIT];
        int ready = epoll_wait(poller, events, EVENTS_A_WAIT, -1);
        if (ready < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < ready; i++) on_readable(events[i].data.ptr);
    }
    double span_s = (now_ns() - start_ns) / 1e9, used_s = cpu_s() - start_cpu_s;
    printf("{");
    print_samples("ttft_ms", ttft_ms, ttfts);
    print_samples("gap_ms", gap_ms, gaps);
    printf("\"requests\": %d, \"reads\": %zu, \"span_s\": %.4f, \"cpu_s\": %.4f}\n", finished, reads,
           span_s, used_s);
}
