/*
 * Clients of a broker: they send Produce or Fetch requests as fast as they are answered, and measure the answers.
 *
 *     load HOST PORT KIND FRAME_BYTES CONNECTIONS IN_FLIGHT WARM_UP_S SECONDS CLIENT_ID plain|tls
 *
 * KIND produce sends frames of FRAME_BYTES (their size included) and gets small ones; fetch sends small ones and asks for
 * answers of FRAME_BYTES; idle asks once on each connection (FRAME_BYTES, IN_FLIGHT and the times say nothing), writes
 * "idle" and keeps the connections open until its standard input ends.
 *
 * Writes "begin" when the warm-up is over, and at the end a JSON object: pairs (of request and answer) and seconds
 * measured, the bytes of a request's and an answer's frame, and a histogram of nanoseconds from the making of a request
 * to the end of its answer. The histogram is [[bucket, count], ...]: below 64 ns a bucket for each, from there on 64 for
 * each power of two.
 *
 * Ends with 1 where a connection ends, an answer carries another correlation id than the oldest request without one, or
 * answers differ in size. TLS certificates are not checked. Requests have valid fields; the records in them are zeros.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

enum { READ_BYTES = 1 << 18, SMALL = 1 << 14, BUCKETS = 64 * 60, HEAD = 8, CORRELATION_AT = 8 };

static const char TOPIC[] = "bench";

static void die(const char *why) {
    fprintf(stderr, "load: %s\n", why);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static unsigned bucket(uint64_t ns) {
    if (ns < 64) return (unsigned)ns;
    unsigned power = 63 - (unsigned)__builtin_clzll(ns); /* 6 and more */
    return (power - 5) * 64 + (unsigned)((ns >> (power - 6)) - 64);
}

/* ---- requests ---- */

typedef struct {
    uint8_t *bytes;
    size_t length;
} Frame;

static void put(Frame *frame, const void *bytes, size_t length) {
    frame->bytes = realloc(frame->bytes, frame->length + length);
    if (!frame->bytes) abort();
    if (bytes) memcpy(frame->bytes + frame->length, bytes, length);
    else memset(frame->bytes + frame->length, 0, length);
    frame->length += length;
}
static void i8(Frame *frame, int value) { put(frame, &(uint8_t){(uint8_t)value}, 1); }
static void i16(Frame *frame, int value) { put(frame, &(uint16_t){htons((uint16_t)value)}, 2); }
static void i32(Frame *frame, int value) { put(frame, &(uint32_t){htonl((uint32_t)value)}, 4); }
static void i64(Frame *frame, int64_t value) {
    i32(frame, (int)(value >> 32));
    i32(frame, (int)value);
}
static void uvarint(Frame *frame, uint32_t value) {
    for (; value >= 0x80; value >>= 7) i8(frame, (int)(value & 0x7f) | 0x80);
    i8(frame, (int)value);
}
static void topic(Frame *frame) { /* one, with one partition */
    uvarint(frame, 2);
    uvarint(frame, sizeof TOPIC);
    put(frame, TOPIC, sizeof TOPIC - 1);
    uvarint(frame, 2);
    i32(frame, 0);
}
static Frame header(int key, int version, const char *client_id) {
    Frame frame = {0};
    i32(&frame, 0); /* the size comes last */
    i16(&frame, key);
    i16(&frame, version);
    i32(&frame, 0); /* the correlation id differs */
    i16(&frame, (int)strlen(client_id));
    put(&frame, client_id, strlen(client_id));
    i8(&frame, 0); /* tags */
    return frame;
}
static Frame sized(Frame frame) {
    uint32_t size = htonl((uint32_t)frame.length - 4);
    memcpy(frame.bytes, &size, 4);
    return frame;
}

static Frame produce_with(const char *client_id, uint32_t records) { /* version 12 */
    Frame frame = header(0, 12, client_id);
    uvarint(&frame, 0); /* no transactional id */
    i16(&frame, 1);     /* acks */
    i32(&frame, 30000); /* timeout */
    topic(&frame);
    uvarint(&frame, records + 1);
    put(&frame, NULL, records);
    for (int i = 0; i < 3; i++) i8(&frame, 0); /* tags */
    return sized(frame);
}

static Frame produce(const char *client_id, uint32_t frame_bytes) {
    Frame frame = produce_with(client_id, 0);
    uint32_t records = frame_bytes > frame.length ? frame_bytes - (uint32_t)frame.length : 0;
    for (;; records--) { /* their length may take bytes itself */
        free(frame.bytes);
        frame = produce_with(client_id, records);
        if (records == 0 || frame.length <= frame_bytes) return frame;
    }
}

static Frame fetch(const char *client_id, uint32_t max_bytes) { /* version 12 */
    Frame frame = header(1, 12, client_id);
    i32(&frame, -1);             /* not a replica */
    i32(&frame, 500);            /* max wait */
    i32(&frame, 1);              /* min bytes */
    i32(&frame, (int)max_bytes); /* the fake broker answers as many */
    i8(&frame, 0);               /* isolation level */
    i32(&frame, 0);              /* session */
    i32(&frame, -1);             /* its epoch */
    topic(&frame);
    i32(&frame, -1); /* leader epoch */
    i64(&frame, 0);  /* offset */
    i32(&frame, -1); /* last fetched epoch */
    i64(&frame, -1); /* log start offset */
    i32(&frame, (int)max_bytes);
    for (int i = 0; i < 2; i++) i8(&frame, 0); /* tags */
    uvarint(&frame, 1);                        /* no forgotten topics */
    uvarint(&frame, 1);                        /* rack "" */
    i8(&frame, 0);
    return sized(frame);
}

/* ---- connections ---- */

typedef struct {
    int fd;
    uint32_t watched;
    void *tls;
    uint8_t *out; /* as many copies of the request as are written at once; only their correlation ids change */
    size_t out_length, out_sent;
    unsigned unsent; /* requests that may be sent now */
    int32_t next_sent, next_answered; /* correlation ids */
    uint64_t *sent_ns;                /* by correlation id modulo requests in flight */
    uint8_t head[HEAD];
    size_t has, skip; /* of the answer: bytes of its head, bytes that are still to come after it */
} Connection;

static int epoll;
static Frame request;
static unsigned in_flight, copies;
static uint64_t pairs, histogram[BUCKETS];
static uint32_t answer_bytes;
static uint8_t in[READ_BYTES];

#ifdef WITH_TLS
static SSL_CTX *context;

static void start_tls(Connection *one) {
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    }
    SSL *tls = SSL_new(context);
    SSL_set_fd(tls, one->fd);
    if (SSL_connect(tls) != 1) die("no TLS");
    one->tls = tls;
}
/* As read and write: 0 at the end, -1 with EAGAIN. */
static ssize_t tls_result(Connection *one, int result) {
    if (result > 0) return result;
    int error = SSL_get_error(one->tls, result);
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EIO;
    return error == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}
static ssize_t receive(Connection *one) {
    return one->tls ? tls_result(one, SSL_read(one->tls, in, sizeof in)) : read(one->fd, in, sizeof in);
}
static ssize_t transmit(Connection *one, const uint8_t *bytes, size_t length) {
    return one->tls ? tls_result(one, SSL_write(one->tls, bytes, (int)length)) : write(one->fd, bytes, length);
}
#else
static void start_tls(Connection *one) {
    (void)one;
    die("built without TLS");
}
static ssize_t receive(Connection *one) { return read(one->fd, in, sizeof in); }
static ssize_t transmit(Connection *one, const uint8_t *bytes, size_t length) { return write(one->fd, bytes, length); }
#endif

static void watch(Connection *one, uint32_t events) {
    if (one->watched == events) return;
    struct epoll_event event = {.events = events, .data.ptr = one};
    epoll_ctl(epoll, one->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, one->fd, &event);
    one->watched = events;
}

static void connect_one(Connection *one, const char *host, int port, int with_tls) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) die("HOST is no IPv4 address");
    one->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (one->fd < 0 || connect(one->fd, (struct sockaddr *)&address, sizeof address)) die("cannot connect");
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (with_tls) start_tls(one);
    fcntl(one->fd, F_SETFL, O_NONBLOCK);
    one->out = malloc(copies * request.length);
    one->sent_ns = calloc(in_flight, sizeof *one->sent_ns);
    if (!one->out || !one->sent_ns) abort();
    for (unsigned i = 0; i < copies; i++) memcpy(one->out + i * request.length, request.bytes, request.length);
}

static void send_requests(Connection *one) {
    for (;;) {
        if (one->out_sent == one->out_length) {
            if (!one->unsent) {
                watch(one, EPOLLIN);
                return;
            }
            unsigned count = one->unsent < copies ? one->unsent : copies;
            uint64_t now = now_ns();
            for (unsigned i = 0; i < count; i++) {
                uint32_t id = htonl((uint32_t)one->next_sent);
                memcpy(one->out + i * request.length + CORRELATION_AT, &id, 4);
                one->sent_ns[(uint32_t)one->next_sent++ % in_flight] = now;
            }
            one->unsent -= count;
            one->out_sent = 0;
            one->out_length = count * request.length;
        }
        ssize_t written = transmit(one, one->out + one->out_sent, one->out_length - one->out_sent);
        if (written < 0 && errno == EAGAIN) {
            watch(one, EPOLLIN | EPOLLOUT);
            return;
        }
        if (written <= 0) die("the connection ended while sending");
        one->out_sent += (size_t)written;
    }
}

static void answered(Connection *one) {
    uint64_t ns = now_ns() - one->sent_ns[(uint32_t)one->next_answered++ % in_flight];
    histogram[bucket(ns)]++;
    pairs++;
    one->unsent++;
}

static void parse(Connection *one, const uint8_t *bytes, size_t length) {
    while (length) {
        size_t wanted = one->skip ? one->skip : HEAD - one->has;
        size_t part = wanted < length ? wanted : length;
        if (one->skip) {
            one->skip -= part;
            if (!one->skip) answered(one);
        } else {
            memcpy(one->head + one->has, bytes, part);
            one->has += part;
            if (one->has == HEAD) {
                uint32_t size, id;
                memcpy(&size, one->head, 4);
                memcpy(&id, one->head + 4, 4);
                size = ntohl(size);
                if ((int32_t)ntohl(id) != one->next_answered) die("an answer with another correlation id");
                if (one->next_answered == one->next_sent) die("an answer that nobody asked for");
                if (!answer_bytes) answer_bytes = size + 4;
                if (answer_bytes != size + 4 || size < 5) die("answers differ in size");
                one->skip = size - 4;
                one->has = 0;
            }
        }
        bytes += part;
        length -= part;
    }
}

static void read_answers(Connection *one) {
    for (;;) {
        ssize_t length = receive(one);
        if (length < 0 && errno == EAGAIN) return;
        if (length <= 0) die("the connection ended");
        parse(one, in, (size_t)length);
        if (!one->tls && (size_t)length < sizeof in) return; /* TLS may hold more that epoll does not see */
    }
}

static void run_until(uint64_t end_ns, uint64_t most_pairs) {
    struct epoll_event ready[256];
    while (now_ns() < end_ns && pairs < most_pairs) {
        int count = epoll_wait(epoll, ready, 256, 100);
        for (int i = 0; i < count; i++) {
            read_answers(ready[i].data.ptr);
            send_requests(ready[i].data.ptr);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 11) {
        fprintf(stderr, "usage: load HOST PORT produce|fetch|idle FRAME_BYTES CONNECTIONS IN_FLIGHT WARM_UP_S SECONDS "
                        "CLIENT_ID plain|tls\n");
        return 2;
    }
    const char *kind = argv[3], *client_id = argv[9];
    int connections = atoi(argv[5]), idle = !strcmp(kind, "idle");
    in_flight = idle ? 1 : (unsigned)atoi(argv[6]);
    double warm_up_s = atof(argv[7]), seconds = atof(argv[8]);
    if (idle) request = produce(client_id, 100);
    else if (!strcmp(kind, "produce")) request = produce(client_id, (uint32_t)atoi(argv[4]));
    else request = fetch(client_id, (uint32_t)atoi(argv[4]));
    copies = request.length <= SMALL ? in_flight : 1;
    epoll = epoll_create1(0);
    Connection *all = calloc((size_t)connections, sizeof *all);
    if (!all) abort();
    for (int i = 0; i < connections; i++) connect_one(all + i, argv[1], atoi(argv[2]), !strcmp(argv[10], "tls"));
    for (int i = 0; i < connections; i++) {
        watch(all + i, EPOLLIN);
        all[i].unsent = in_flight;
        send_requests(all + i);
        if (idle) { /* one after the other, each once */
            run_until(now_ns() + 10000000000u, 1);
            if (pairs != 1) die("no answer");
            pairs = 0;
            struct epoll_event none = {0};
            epoll_ctl(epoll, EPOLL_CTL_DEL, all[i].fd, &none);
        }
    }
    if (idle) {
        puts("idle");
        fflush(stdout);
        while (read(0, in, sizeof in) > 0) {
        }
        return 0;
    }
    run_until(now_ns() + (uint64_t)(warm_up_s * 1e9), UINT64_MAX);
    puts("begin");
    fflush(stdout);
    pairs = 0;
    memset(histogram, 0, sizeof histogram);
    uint64_t begin = now_ns();
    run_until(begin + (uint64_t)(seconds * 1e9), UINT64_MAX);
    printf("{\"pairs\": %llu, \"seconds\": %.6f, \"request_bytes\": %zu, \"answer_bytes\": %u, \"histogram\": [",
           (unsigned long long)pairs, (double)(now_ns() - begin) / 1e9, request.length, answer_bytes);
    const char *comma = "";
    for (unsigned i = 0; i < BUCKETS; i++) {
        if (!histogram[i]) continue;
        printf("%s[%u, %llu]", comma, i, (unsigned long long)histogram[i]);
        comma = ", ";
    }
    puts("]}");
    return 0;
}
