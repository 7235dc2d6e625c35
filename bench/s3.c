/* A client of S3 that costs little, for `cargo xtask bench s3`: each thread has a connection that stays open.
 *
 *   s3 PORT ACCESS SECRET BUCKET VERB THREADS BYTES NUMBER [SECONDS]
 *
 *   bucket          makes the bucket
 *   versioning      switches it on
 *   fill NUMBER     writes so many objects `k<number>`
 *   put             writes new objects for SECONDS
 *   get NUMBER      reads some of those that `fill` made, for SECONDS
 *   mixed NUMBER    45 % GET, 30 % HEAD of those, 15 % PUT of new ones, 10 % DELETE of its own new ones, for SECONDS
 *   multipart NUMBER   uploads of NUMBER parts of BYTES each, for SECONDS
 *   list NUMBER, versions NUMBER   the whole bucket, 1,000 a page, again and again for SECONDS; it must have NUMBER
 *   hold NUMBER     NUMBER connections, a request on each; they stay until standard input ends
 *
 * On loopback. Requests are signed (version 4, header) with the SHA-256 of the body, which is computed once; what comes
 * back is read and, but for lists, not looked at.
 * Prints one line of JSON: operations (keys of a list), seconds, CPU seconds of this process, latency in ms (mean, the
 * 99th of a hundred, the longest). Exits 1 at the first answer that is no success.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what, const char *more) {
  fprintf(stderr, "%s: %s\n", what, more);
  exit(1);
}

/* SHA-256, FIPS 180-4. */
struct sha { uint32_t h[8]; uint8_t block[64]; uint64_t bytes; };
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void compress(struct sha *s, const uint8_t *p) {
  uint32_t w[64], v[8];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
  for (int i = 16; i < 64; i++)
    w[i] = w[i - 16] + w[i - 7] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
           (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
  memcpy(v, s->h, sizeof v);
  for (int i = 0; i < 64; i++) {
    uint32_t a = v[7] + (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + K[i] + w[i];
    uint32_t b = (turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += a;
    v[0] = a + b;
  }
  for (int i = 0; i < 8; i++) s->h[i] += v[i];
}

static void sha_start(struct sha *s) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(s->h, first, sizeof first);
  s->bytes = 0;
}

static void sha_add(struct sha *s, const void *data, size_t n) {
  const uint8_t *p = data;
  size_t at = s->bytes % 64;
  s->bytes += n;
  while (n) {
    size_t take = 64 - at < n ? 64 - at : n;
    memcpy(s->block + at, p, take);
    at += take, p += take, n -= take;
    if (at == 64) compress(s, s->block), at = 0;
  }
}

static void sha_end(struct sha *s, uint8_t out[32]) {
  uint64_t bits = s->bytes * 8;
  uint8_t tail[8];
  for (int i = 0; i < 8; i++) tail[i] = (uint8_t)(bits >> (56 - 8 * i));
  sha_add(s, "\x80", 1);
  while (s->bytes % 64 != 56) sha_add(s, "", 1);
  sha_add(s, tail, 8);
  for (int i = 0; i < 32; i++) out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

static void sha(const void *data, size_t n, uint8_t out[32]) {
  struct sha s;
  sha_start(&s);
  sha_add(&s, data, n);
  sha_end(&s, out);
}

static void hmac(const void *key, size_t key_len, const char *text, uint8_t out[32]) {
  uint8_t pad[64] = {0}, inner[32];
  struct sha s;
  memcpy(pad, key, key_len);
  for (int i = 0; i < 64; i++) pad[i] ^= 0x36;
  sha_start(&s), sha_add(&s, pad, 64), sha_add(&s, text, strlen(text)), sha_end(&s, inner);
  for (int i = 0; i < 64; i++) pad[i] ^= 0x36 ^ 0x5c;
  sha_start(&s), sha_add(&s, pad, 64), sha_add(&s, inner, 32), sha_end(&s, out);
}

static void hex(const uint8_t in[32], char out[65]) {
  for (int i = 0; i < 32; i++) snprintf(out + 2 * i, 3, "%02x", in[i]);
}

static const char *access_key, *secret, *bucket, *verb;
static int port, threads;
static long number;
static double seconds;
static uint8_t *body;
static size_t body_len;
static char body_hash[65], empty_hash[65];
static double begin;
static pthread_barrier_t start;

static double clock_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct client {
  int fd, id;
  char *in;             /* What has been read and not used, then an answer's body. */
  size_t room, held;
  char *text;           /* The body of the last answer, of a list or an upload. */
  size_t text_len, text_room;
  char etag[80];
  char day[9];
  uint8_t key[32];
  double ops, longest, sum;
  float *times;
  long timed, times_room;
  unsigned seed;
};

static void connect_to(struct client *c) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int one = 1;
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&at, sizeof at)) die("connect", strerror(errno));
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void more(struct client *c) {
  if (c->room - c->held < 65536) c->in = realloc(c->in, c->room = c->room * 2 + 262144);
  ssize_t n = read(c->fd, c->in + c->held, c->room - c->held);
  if (n <= 0) die("the gateway closed a connection", n < 0 ? strerror(errno) : "end");
  c->held += (size_t)n;
}

static void use(struct client *c, size_t n) {
  memmove(c->in, c->in + n, c->held - n);
  c->held -= n;
}

/* Takes n bytes of a body. */
static void take(struct client *c, size_t n, int keep) {
  while (n) {
    if (!c->held) more(c);
    size_t part = c->held < n ? c->held : n;
    if (keep) {
      if (c->text_len + part + 1 > c->text_room) c->text = realloc(c->text, c->text_room = (c->text_len + part + 1) * 2);
      memcpy(c->text + c->text_len, c->in, part);
      c->text_len += part;
      c->text[c->text_len] = 0;
    }
    use(c, part);
    n -= part;
  }
}

static const char *header(const char *head, const char *wanted) {
  size_t n = strlen(wanted);
  for (const char *at = strstr(head, "\r\n"); at && at[2] != '\r'; at = strstr(at + 2, "\r\n"))
    if (!strncasecmp(at + 2, wanted, n)) return at + 2 + n + strspn(at + 2 + n, " ");
  return NULL;
}

/* A request and its answer, whose body is kept if `keep`. `query` is as it is signed: sorted, with all its `=`. */
static void ask(struct client *c, const char *method, const char *path, const char *query, const void *data, size_t len,
                const char *hash, int keep) {
  char stamp[32], canonical[4096], text[512], head[4096], signature[65], digest[65];
  uint8_t out[32];
  time_t now = time(NULL);
  struct tm tm;
  gmtime_r(&now, &tm);
  strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &tm);
  if (strncmp(stamp, c->day, 8)) {
    char first[128];
    memcpy(c->day, stamp, 8);
    snprintf(first, sizeof first, "AWS4%s", secret);
    hmac(first, strlen(first), c->day, out), hmac(out, 32, "default", out), hmac(out, 32, "s3", out);
    hmac(out, 32, "aws4_request", c->key);
  }
  snprintf(canonical, sizeof canonical,
           "%s\n%s\n%s\nhost:127.0.0.1:%d\nx-amz-content-sha256:%s\nx-amz-date:%s\n\nhost;x-amz-content-sha256;x-amz-date\n%s",
           method, path, query, port, hash, stamp, hash);
  sha(canonical, strlen(canonical), out), hex(out, digest);
  snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s/default/s3/aws4_request\n%s", stamp, c->day, digest);
  hmac(c->key, 32, text, out), hex(out, signature);
  int n = snprintf(head, sizeof head,
                   "%s %s%s%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nx-amz-content-sha256: %s\r\nx-amz-date: %s\r\n"
                   "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s/default/s3/aws4_request, "
                   "SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=%s\r\nContent-Length: %zu\r\n\r\n",
                   method, path, *query ? "?" : "", query, port, hash, stamp, access_key, c->day, signature, len);
  struct iovec parts[2] = {{head, (size_t)n}, {(void *)data, len}};
  size_t sent = 0, all = (size_t)n + len;
  while (sent < all) {
    ssize_t wrote = writev(c->fd, parts, 2);
    if (wrote < 0) die("write", strerror(errno));
    sent += (size_t)wrote;
    for (int i = 0; i < 2; i++) {
      size_t of = (size_t)wrote < parts[i].iov_len ? (size_t)wrote : parts[i].iov_len;
      parts[i].iov_base = (char *)parts[i].iov_base + of, parts[i].iov_len -= of, wrote -= (ssize_t)of;
    }
  }
  char *end;
  for (;;) {
    while (c->held < 4 || !(end = memmem(c->in, c->held, "\r\n\r\n", 4))) more(c);
    end[2] = 0;
    if (!strncmp(c->in, "HTTP/1.1 100", 12)) { use(c, (size_t)(end - c->in) + 4); continue; }
    break;
  }
  char status[64];
  snprintf(status, sizeof status, "%.60s", c->in);
  const char *length = header(c->in, "content-length:"), *etag = header(c->in, "etag:");
  int chunked = header(c->in, "transfer-encoding:") != NULL, none = !strcmp(method, "HEAD") || !strncmp(c->in + 9, "204", 3);
  if (etag) snprintf(c->etag, sizeof c->etag, "%.*s", (int)strcspn(etag, "\r"), etag);
  size_t left = length && !none ? strtoul(length, NULL, 10) : 0;
  int good = c->in[9] == '2';
  use(c, (size_t)(end - c->in) + 4);
  c->text_len = 0;
  if (!good) keep = 1;
  if (chunked && !none) {
    for (;;) {
      char *line;
      while (c->held < 2 || !(line = memmem(c->in, c->held, "\r\n", 2))) more(c);
      size_t chunk = strtoul(c->in, NULL, 16);
      use(c, (size_t)(line - c->in) + 2);
      take(c, chunk, keep);
      take(c, 2, 0);
      if (!chunk) break;
    }
  } else {
    take(c, left, keep);
  }
  if (!good) {
    fprintf(stderr, "%s %s?%s: %.30s %.300s\n", method, path, query, status, c->text ? c->text : "");
    exit(1);
  }
}

/* Asks, and keeps how long that took. */
static void timed(struct client *c, const char *method, const char *path, const void *data, size_t len, const char *hash) {
  double before = clock_s();
  ask(c, method, path, "", data, len, hash, 0);
  double took = clock_s() - before;
  if (c->timed == c->times_room) c->times = realloc(c->times, sizeof *c->times * (size_t)(c->times_room = c->times_room * 2 + 4096));
  c->times[c->timed++] = (float)took;
  c->sum += took, c->ops++;
  if (took > c->longest) c->longest = took;
}

static void element(const char *text, const char *name, char *out, size_t room) {
  char open[64];
  snprintf(open, sizeof open, "<%s>", name);
  const char *at = text ? strstr(text, open) : NULL;
  *out = 0;
  if (at) at += strlen(open), snprintf(out, room, "%.*s", (int)strcspn(at, "<"), at);
}

/* Percent-encoded for a query. */
static void encode(const char *in, char *out) {
  for (; *in; in++)
    if (strchr("-._~", *in) || (*in >= '0' && *in <= '9') || (*in >= 'a' && *in <= 'z') || (*in >= 'A' && *in <= 'Z')) *out++ = *in;
    else out += sprintf(out, "%%%02X", (unsigned char)*in);
  *out = 0;
}

static void upload(struct client *c, long nth) {
  char path[256], id[256], coded[800], query[1100], *list = malloc((size_t)number * 160 + 128), hash[65];
  uint8_t out[32];
  snprintf(path, sizeof path, "/%s/m%d-%d-%ld", bucket, getpid(), c->id, nth);
  double before = clock_s();
  ask(c, "POST", path, "uploads=", "", 0, empty_hash, 1);
  element(c->text, "UploadId", id, sizeof id);
  if (!*id) die("no UploadId in", c->text);
  encode(id, coded);
  size_t at = (size_t)sprintf(list, "<CompleteMultipartUpload>");
  for (long part = 1; part <= number; part++) {
    snprintf(query, sizeof query, "partNumber=%ld&uploadId=%s", part, coded);
    ask(c, "PUT", path, query, body, body_len, body_hash, 0);
    at += (size_t)sprintf(list + at, "<Part><PartNumber>%ld</PartNumber><ETag>%s</ETag></Part>", part, c->etag);
  }
  at += (size_t)sprintf(list + at, "</CompleteMultipartUpload>");
  sha(list, at, out), hex(out, hash);
  snprintf(query, sizeof query, "uploadId=%s", coded);
  ask(c, "POST", path, query, list, at, hash, 1);
  if (!strstr(c->text, "ETag")) die("the upload was not completed", c->text);
  double took = clock_s() - before;
  c->sum += took, c->ops++;
  if (took > c->longest) c->longest = took;
  free(list);
}

static long count(const char *text, const char *what) {
  long n = 0;
  for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
  return n;
}

/* The whole bucket once. */
static void list(struct client *c, int versions) {
  char path[256], query[4096] = "", next[1024], coded[3100], second[1024], coded_second[3100];
  long keys = 0;
  snprintf(path, sizeof path, "/%s", bucket);
  snprintf(query, sizeof query, versions ? "max-keys=1000&versions=" : "list-type=2&max-keys=1000");
  for (;;) {
    ask(c, "GET", path, query, "", 0, empty_hash, 1);
    keys += count(c->text, "<Key>");
    if (!strstr(c->text, "<IsTruncated>true")) break;
    if (versions) {
      element(c->text, "NextKeyMarker", next, sizeof next), element(c->text, "NextVersionIdMarker", second, sizeof second);
      encode(next, coded), encode(second, coded_second);
      snprintf(query, sizeof query, "key-marker=%.1500s&max-keys=1000&version-id-marker=%.1500s&versions=", coded, coded_second);
    } else {
      element(c->text, "NextContinuationToken", next, sizeof next);
      encode(next, coded);
      snprintf(query, sizeof query, "continuation-token=%s&list-type=2&max-keys=1000", coded);
    }
  }
  if (keys != number) {
    fprintf(stderr, "the list has %ld keys, not %ld\n", keys, number);
    exit(1);
  }
  c->ops += (double)keys;
}

static void *work(void *arg) {
  struct client *c = arg;
  char path[256];
  long made = 0, gone = 0;
  connect_to(c);
  pthread_barrier_wait(&start);
  pthread_barrier_wait(&start);
  int fill = !strcmp(verb, "fill"), get = !strcmp(verb, "get"), mixed = !strcmp(verb, "mixed");
  for (long n = c->id; fill ? n < number : clock_s() - begin < seconds; n += threads) {
    if (fill) {
      snprintf(path, sizeof path, "/%s/k%08ld", bucket, n);
      timed(c, "PUT", path, body, body_len, body_hash);
    } else if (!strcmp(verb, "list") || !strcmp(verb, "versions")) {
      list(c, verb[0] == 'v');
    } else if (!strcmp(verb, "multipart")) {
      upload(c, n);
    } else {
      int draw = mixed ? rand_r(&c->seed) % 100 : get ? 0 : 80;
      snprintf(path, sizeof path, "/%s/k%08ld", bucket, rand_r(&c->seed) % (number > 0 ? number : 1));
      if (draw < 45) timed(c, "GET", path, "", 0, empty_hash);
      else if (draw < 75) timed(c, "HEAD", path, "", 0, empty_hash);
      else if (draw < 90 || gone == made) {
        snprintf(path, sizeof path, "/%s/n%d-%d-%ld", bucket, getpid(), c->id, made++);
        timed(c, "PUT", path, body, body_len, body_hash);
      } else {
        snprintf(path, sizeof path, "/%s/n%d-%d-%ld", bucket, getpid(), c->id, gone++);
        timed(c, "DELETE", path, "", 0, empty_hash);
      }
    }
  }
  return NULL;
}

static int by_size(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static double cpu_s(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
  if (argc < 9) die("usage", "s3 PORT ACCESS SECRET BUCKET VERB THREADS BYTES NUMBER [SECONDS]");
  port = atoi(argv[1]), access_key = argv[2], secret = argv[3], bucket = argv[4], verb = argv[5], threads = atoi(argv[6]);
  body_len = strtoul(argv[7], NULL, 10), number = atol(argv[8]), seconds = argc > 9 ? atof(argv[9]) : 0;
  uint8_t out[32];
  unsigned seed = 7;
  body = malloc(body_len + 1);
  for (size_t i = 0; i < body_len; i++) body[i] = (uint8_t)(rand_r(&seed) >> 7);
  sha(body, body_len, out), hex(out, body_hash);
  sha("", 0, out), hex(out, empty_hash);
  if (!strcmp(verb, "bucket") || !strcmp(verb, "versioning")) {
    struct client c = {0};
    char path[256], hash[65];
    const char *on = verb[0] == 'v' ? "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>" : "";
    connect_to(&c);
    sha(on, strlen(on), out), hex(out, hash);
    snprintf(path, sizeof path, "/%s", bucket);
    ask(&c, "PUT", path, *on ? "versioning=" : "", on, strlen(on), hash, 0);
    return 0;
  }
  if (!strcmp(verb, "hold")) {
    struct client *all = calloc((size_t)number, sizeof *all);
    char path[256], byte;
    snprintf(path, sizeof path, "/%s", bucket);
    for (long i = 0; i < number; i++) connect_to(&all[i]), ask(&all[i], "HEAD", path, "", "", 0, empty_hash, 0);
    puts("held"), fflush(stdout);
    while (read(0, &byte, 1) > 0) {}
    return 0;
  }
  struct client *all = calloc((size_t)threads, sizeof *all);
  pthread_t *ids = calloc((size_t)threads, sizeof *ids);
  pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
  for (int i = 0; i < threads; i++) {
    all[i].id = i, all[i].seed = (unsigned)(i * 7919 + 1);
    if (pthread_create(&ids[i], NULL, work, &all[i])) die("thread", strerror(errno));
  }
  pthread_barrier_wait(&start);
  double cpu = cpu_s(), ops = 0, sum = 0, longest = 0;
  begin = clock_s();
  pthread_barrier_wait(&start);
  long timed_all = 0;
  for (int i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    ops += all[i].ops, sum += all[i].sum, timed_all += all[i].timed;
    if (all[i].longest > longest) longest = all[i].longest;
  }
  double took = clock_s() - begin;
  cpu = cpu_s() - cpu;
  float *times = malloc(sizeof *times * (size_t)(timed_all + 1));
  long at = 0;
  for (int i = 0; i < threads; i++) memcpy(times + at, all[i].times, sizeof *times * (size_t)all[i].timed), at += all[i].timed;
  qsort(times, (size_t)timed_all, sizeof *times, by_size);
  printf("{\"ops\": %.0f, \"secs\": %.6f, \"cpu_s\": %.6f, \"mean_ms\": %.4f, \"p99_ms\": %.4f, \"longest_ms\": %.4f}\n", ops, took,
         cpu, ops > 0 ? sum / ops * 1e3 : 0, timed_all ? times[timed_all * 99 / 100] * 1e3 : 0.0, longest * 1e3);
  return 0;
}
