/* Sums gradients of several workers; docs/c.md explains it.
 * Arguments: none, or HOST:PORT RANK WORKERS for each of several processes. */
#include <stdio.h>
#include <stdlib.h>
#include <telegrad.h>

enum { kSize = 1000 };

static telegrad_status status;

static void check(int32_t code, const char* what) {
  if (code == TELEGRAD_OK) return;
  fprintf(stderr, "%s: %s%s%s\n", what, status.message,
          status.dead[0] ? "; dead: " : "", status.dead);
  exit(status.exit_code);
}

int main(int argc, char** argv) {
  telegrad_job_options options;
  telegrad_job_options_init(&options, sizeof options);
  if (argc == 4) { /* the process of rank 0 has scheduler and server, too */
    options.scheduler = argv[1];
    options.rank = atoi(argv[2]);
    options.num_workers = atoi(argv[3]);
    options.has_scheduler = options.rank == 0;
    options.servers_here = options.rank == 0;
  }
  telegrad_job* job = NULL;
  check(telegrad_job_start(&options, &job, &status), "start");
  check(telegrad_job_join(job, &status), "join");
  telegrad_store* store = NULL;
  check(telegrad_store_create(job, "dist_sync", NULL, &store, &status),
        "store");

  telegrad_compression compression;
  telegrad_compression_init(&compression, sizeof compression);
  compression.type = "2bit:0.5";
  check(telegrad_store_set_compression(store, &compression, &status), "codec");

  static float weight[kSize], bias[kSize];
  const char* const names[] = {"weight", "bias"};
  const telegrad_tensor tensors[] = {
      {weight, kSize, TELEGRAD_FLOAT32, -1, 0},
      {bias, kSize, TELEGRAD_FLOAT32, -1, 0},
  };
  uint32_t keys[2];
  check(telegrad_store_init(store, 2, names, tensors, NULL, 0, keys, &status),
        "init");

  telegrad_queue* queue = NULL;
  check(telegrad_queue_create(&queue, &status), "queue");
  for (uint64_t step = 1; step <= 4; ++step) {
    for (int i = 0; i < kSize; ++i) weight[i] = bias[i] = 0.25f;
    check(telegrad_store_push_pull(store, 2, keys, tensors, tensors, NULL,
                                   queue, step, &status),
          "push_pull");
    uint64_t done = 0;
    int32_t code = TELEGRAD_PENDING;
    while (code == TELEGRAD_PENDING) { /* time for something else, meanwhile */
      code = telegrad_queue_next(queue, 0.1, &done, &status);
    }
    check(code, "step");
    printf("step %d: %g\n", (int)done, weight[0]);
  }

  telegrad_stats stats;
  check(telegrad_store_stats(store, &stats, &status), "stats");
  printf("pushed %lld bytes as %lld\n", (long long)stats.push_raw_bytes,
         (long long)stats.push_wire_bytes);
  telegrad_queue_free(queue);
  telegrad_store_close(store);
  check(telegrad_job_close(job, 60, &status), "close");
  return 0;
}
