/* Clients of a file system, for `cargo xtask bench fs`: libcephfs, each client a process with a mount of its own.
 *
 *   fs CONF CLIENTS VERB DIR NUMBER [hold]
 *
 *   create NUMBER   makes so many empty files per client, each client in DIR/c<client>
 *   shared NUMBER   the same, all of them in DIR
 *   create-secs, shared-secs NUMBER   for so many seconds instead
 *   unlink NUMBER, unlink-shared NUMBER   removes what `create` or `shared` made
 *   stat NUMBER     asks for the attributes of NUMBER names of DIR, one after the other
 *   list NUMBER     reads DIR with the attributes of all entries, which must be NUMBER
 *   gap NUMBER      makes a file every 5 ms until one took longer than 0.9 s, or for NUMBER seconds
 *
 * Clients are mounted, and their directories made, before time runs. Prints one line of JSON: operations, seconds
 * from the start to the end of the slowest client, CPU seconds of all clients in that time, the longest operation in
 * seconds. With `hold` the mounts, and what they hold, stay until standard input ends. Exits 1 when an operation
 * fails, with its errno. It is linked with the library of the root that it runs in; what it uses of the library's
 * interface is declared here, so that no header is needed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct ceph_mount_info;
struct ceph_dir_result;
struct Inode;
/* Upstream's struct ceph_statx, of which nothing is read: more room than its 136 bytes. */
struct statx_room { uint64_t words[64]; };
int ceph_create(struct ceph_mount_info **, const char *id);
int ceph_conf_read_file(struct ceph_mount_info *, const char *path);
int ceph_conf_set(struct ceph_mount_info *, const char *option, const char *value);
int ceph_mount(struct ceph_mount_info *, const char *root);
int ceph_unmount(struct ceph_mount_info *);
int ceph_mkdir(struct ceph_mount_info *, const char *path, mode_t);
int ceph_open(struct ceph_mount_info *, const char *path, int flags, mode_t);
int ceph_close(struct ceph_mount_info *, int fd);
int ceph_unlink(struct ceph_mount_info *, const char *path);
int ceph_statx(struct ceph_mount_info *, const char *path, struct statx_room *, unsigned want, unsigned flags);
int ceph_opendir(struct ceph_mount_info *, const char *path, struct ceph_dir_result **);
int ceph_readdirplus_r(struct ceph_mount_info *, struct ceph_dir_result *, struct dirent *, struct statx_room *,
                       unsigned want, unsigned flags, struct Inode **);
int ceph_closedir(struct ceph_mount_info *, struct ceph_dir_result *);
#define BASIC_STATS 0x7ffu

struct result { double ops, cpu, longest; };

static double clock_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_s(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void must(int code, const char *what, const char *path) {
  if (code >= 0) return;
  fprintf(stderr, "%s %s: %s\n", what, path, strerror(-code));
  exit(1);
}

static void make(struct ceph_mount_info *m, const char *path) {
  int fd = ceph_open(m, path, O_CREAT | O_EXCL | O_WRONLY, 0644);
  must(fd, "create", path);
  must(ceph_close(m, fd), "close", path);
}

/* Another client may have made it. */
static void directory(struct ceph_mount_info *m, const char *path) {
  int code = ceph_mkdir(m, path, 0755);
  if (code != -EEXIST) must(code, "mkdir", path);
}

/* The name of a client's nth file. */
static void name(char *path, size_t room, const char *dir, int shared, int clients, int client, long nth) {
  if (shared) snprintf(path, room, "%s/f%08ld", dir, nth * clients + client);
  else snprintf(path, room, "%s/c%d/f%08ld", dir, client, nth);
}

static struct result work(struct ceph_mount_info *m, const char *verb, const char *dir, int clients, int client,
                          long number) {
  struct result r = {0};
  struct statx_room attributes;
  char path[4096];
  int shared = strstr(verb, "shared") != NULL, timed = strstr(verb, "-secs") != NULL;
  double begin = clock_s(), before = begin, after;
  if (!strcmp(verb, "list")) {
    struct ceph_dir_result *handle;
    struct dirent entry;
    int code;
    must(ceph_opendir(m, dir, &handle), "opendir", dir);
    while ((code = ceph_readdirplus_r(m, handle, &entry, &attributes, BASIC_STATS, 0, NULL)) > 0)
      if (strcmp(entry.d_name, ".") && strcmp(entry.d_name, "..")) r.ops++;
    must(code, "readdir", dir);
    must(ceph_closedir(m, handle), "closedir", dir);
    if (r.ops != (double)number) {
      fprintf(stderr, "%s has %.0f entries, not %ld\n", dir, r.ops, number);
      exit(1);
    }
    return r;
  }
  for (long n = 0;; n++, before = after) {
    if (!strcmp(verb, "gap")) {
      struct timespec pause = {0, 5000000};
      nanosleep(&pause, NULL);
      before = clock_s();
      snprintf(path, sizeof path, "%s/gap-%d-%ld", dir, getpid(), n);
      make(m, path);
    } else if (timed ? before - begin >= (double)number : n >= number) {
      break;
    } else {
      name(path, sizeof path, dir, shared || !strcmp(verb, "stat"), !strcmp(verb, "stat") ? 1 : clients, client, n);
      if (!strcmp(verb, "stat")) must(ceph_statx(m, path, &attributes, BASIC_STATS, 0), "stat", path);
      else if (!strncmp(verb, "unlink", 6)) must(ceph_unlink(m, path), "unlink", path);
      else make(m, path);
    }
    after = clock_s();
    r.ops++;
    if (after - before > r.longest) r.longest = after - before;
    if (!strcmp(verb, "gap") && (r.longest > 0.9 || after - begin > (double)number)) break;
  }
  return r;
}

static int client_main(char **argv, int clients, int client, int hold, int mount, int ready, int go, int done, int end) {
  const char *dir = argv[4];
  char own[4096], byte;
  struct ceph_mount_info *m;
  must(ceph_create(&m, "admin"), "client", "admin");
  must(ceph_conf_read_file(m, argv[1]), "read", argv[1]);
  /* So that it holds all that it has seen. */
  if (hold) must(ceph_conf_set(m, "client_cache_size", "10000000"), "set", "client_cache_size");
  /* One after the other, as they are told. */
  if (read(mount, &byte, 1) != 1) return 1;
  must(ceph_mount(m, "/"), "mount", "/");
  snprintf(own, sizeof own, "%s/c%d", dir, client);
  directory(m, dir);
  if (!strncmp(argv[3], "create", 6)) directory(m, own);
  if (write(ready, "r", 1) != 1 || read(go, &byte, 1) != 1) return 1;
  double cpu = cpu_s();
  struct result r = work(m, argv[3], dir, clients, client, atol(argv[5]));
  r.cpu = cpu_s() - cpu;
  if (write(done, &r, sizeof r) != (ssize_t)sizeof r) return 1;
  /* Mounts end together, for their end costs CPU, too. */
  if (read(end, &byte, 1) != 0) return 1;
  must(ceph_unmount(m), "unmount", "/");
  return 0;
}

/* A client that fails ends all: the others would wait for its part. */
static void ended(int signal) {
  int status;
  (void)signal;
  while (waitpid(-1, &status, WNOHANG) > 0)
    if (status) _exit(1);
}

int main(int argc, char **argv) {
  if (argc < 6) {
    fprintf(stderr, "usage: fs CONF CLIENTS VERB DIR NUMBER [hold]\n");
    return 2;
  }
  int clients = atoi(argv[2]), hold = argc > 6, mount[2], ready[2], go[2], done[2], end[2];
  char byte;
  signal(SIGCHLD, ended);
  if (pipe(mount) || pipe(ready) || pipe(go) || pipe(done) || pipe(end)) return 1;
  for (int i = 0; i < clients; i++) {
    pid_t pid = fork();
    if (pid < 0) return 1;
    if (pid) continue;
    close(mount[1]), close(ready[0]), close(go[1]), close(done[0]), close(end[1]);
    exit(client_main(argv, clients, i, hold, mount[0], ready[1], go[0], done[1], end[0]));
  }
  close(mount[0]), close(ready[1]), close(go[0]), close(done[1]), close(end[0]);
  for (int i = 0; i < clients; i++)
    if (write(mount[1], "m", 1) != 1 || read(ready[0], &byte, 1) != 1) return 1;
  double begin = clock_s();
  for (int i = 0; i < clients; i++)
    if (write(go[1], "g", 1) != 1) return 1;
  struct result sum = {0}, r;
  for (int i = 0; i < clients; i++) {
    if (read(done[0], &r, sizeof r) != (ssize_t)sizeof r) return 1;
    sum.ops += r.ops;
    sum.cpu += r.cpu;
    if (r.longest > sum.longest) sum.longest = r.longest;
  }
  printf("{\"ops\": %.0f, \"secs\": %.6f, \"cpu_s\": %.6f, \"longest_s\": %.6f}\n", sum.ops, clock_s() - begin, sum.cpu,
         sum.longest);
  fflush(stdout);
  if (hold)
    while (read(0, &byte, 1) > 0) {}
  close(end[1]);
  int status;
  while (wait(&status) > 0 || errno == EINTR)
    if (status) return 1;
  return 0;
}
