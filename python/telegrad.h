/* Telegrad for C, and for whatever calls C. docs/c.md explains it.
 *
 * Handles are opaque. Every call that can fail returns a telegrad_code and
 * fills `status`, which may be NULL. No call blocks for ever. Calls on one
 * handle may come from any thread, but not while it is freed. In a child that
 * was forked, handles of the parent are refused and freeing does nothing. */
#pragma once

#include <stdint.h>

#if defined(__GNUC__)
#define TELEGRAD_API __attribute__((visibility("default")))
#else
#define TELEGRAD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a caller that was compiled before would break. */
#define TELEGRAD_ABI 2

enum telegrad_code {
  TELEGRAD_PENDING = -1, /* nothing was done by then: no error */
  TELEGRAD_OK = 0,
  TELEGRAD_INVALID_ARGUMENT = 1,
  TELEGRAD_NOT_FOUND = 2,
  TELEGRAD_FAILED_PRECONDITION = 3, /* wrong order, closed, forked */
  TELEGRAD_UNIMPLEMENTED = 4,       /* not in this build or on this device */
  TELEGRAD_UNAVAILABLE = 5,         /* a peer is gone */
  TELEGRAD_DEADLINE_EXCEEDED = 6,
  TELEGRAD_CANCELLED = 7,
  TELEGRAD_DATA_LOSS = 8,
  TELEGRAD_RESOURCE_EXHAUSTED = 9,
  TELEGRAD_UNAUTHENTICATED = 10,
  TELEGRAD_INTERNAL = 11,
  TELEGRAD_TOO_SMALL = 12,  /* the buffer; `needed` says how large it must be */
  TELEGRAD_EPOCH_ENDED = 13 /* the job goes on: telegrad_job_reconfigure */
};

typedef struct telegrad_status {
  int32_t code;       /* telegrad_code */
  int32_t exit_code;  /* as programs end with it: docs/user_guide.md */
  char dead[1024];    /* who died: "worker/2@host:pid", one a line */
  char message[3064]; /* what happened, with values */
} telegrad_status;

/* "0.2.0", and TELEGRAD_ABI of the library. */
TELEGRAD_API const char* telegrad_version(void);
TELEGRAD_API int32_t telegrad_abi(void);
/* Lines on standard error: 0 all, 1 warnings and errors, 2 errors alone. */
TELEGRAD_API void telegrad_set_log_level(int32_t level);

/* ---- jobs: a scheduler, servers and workers ---- */

typedef struct telegrad_job telegrad_job;

enum telegrad_role {
  TELEGRAD_WORKER = 0,
  TELEGRAD_SERVER = 1,
  TELEGRAD_SCHEDULER = 2
};

/* What a process does in a job. Strings may be NULL; they and numbers that are
 * 0 stand for what telegrad_job_options_init sets. */
typedef struct telegrad_job_options {
  uint32_t size;         /* set by telegrad_job_options_init */
  int32_t from_launcher; /* 1: role, rank, counts, scheduler by a launcher */
  int32_t role;          /* telegrad_role; TELEGRAD_WORKER */
  int32_t rank;          /* that is asked for; -1, the standard: any */
  int32_t num_workers;   /* of the job; 1 */
  int32_t num_servers;   /* of the job; 1 */
  int32_t has_scheduler; /* 1: it runs in this process, on threads */
  int32_t servers_here;  /* so many servers run in this process, on threads */
  int32_t num_threads;   /* of codecs and sums; 1 */
  int32_t insecure;      /* 1: other addresses than loopback without secret */
  const char* scheduler; /* "host:port". NULL: a job of one worker, here */
  const char* job_id;    /* "local" */
  const void* secret;    /* 32 bytes or more that all members share */
  uint64_t secret_bytes;
  const char* transport; /* "tcp"; "auto", or what --transport takes */
  const char* tls;
  const char* bind;           /* "127.0.0.1"; or what --bind takes */
  const char* link;           /* "none"; or an emulated one, as --link takes */
  double join_timeout_s;      /* 60 */
  double dead_timeout_s;      /* 10: silence that means death */
  double operation_timeout_s; /* 300: of one operation, gather or barrier */
  int32_t hosts_part;   /* 1: workers sum, for stores "allreduce"; no servers */
  int32_t metrics_port; /* 0: none; -1: any free; or the first free from it */
  const char* gdr;      /* NULL: no tensors on GPUs; else as --gdr: "auto" */
  const char* tier1;    /* workers of a host sum first: "auto"; "on", "off" */
  const char* metrics_file;    /* NULL: none; telegrad_tools.h, "metrics" */
  const char* encryption;      /* "auto"; as --encryption */
  const char* flight_recorder; /* folder; as $TELEGRAD_FLIGHT_RECORDER */
  int32_t elastic_min;         /* 0: a death ends the job; telegrad_ends.h */
  int32_t elastic_max;         /* 0: num_workers */
  int32_t gpu;                 /* -1; or CUDA's number of the tensors' GPU */
} telegrad_job_options;

/* `size`: sizeof(telegrad_job_options) as the caller knows it. */
TELEGRAD_API void telegrad_job_options_init(telegrad_job_options* options,
                                            uint64_t size);

/* Starts the parts that run on threads. A scheduler's address is known then. */
TELEGRAD_API int32_t telegrad_job_start(const telegrad_job_options* options,
                                        telegrad_job** job,
                                        telegrad_status* status);
/* Of the scheduler: "127.0.0.1:40123". */
TELEGRAD_API const char* telegrad_job_address(const telegrad_job* job);
/* telegrad_role, of the launcher's variables where options say so. */
TELEGRAD_API int32_t telegrad_job_role(const telegrad_job* job);
/* A worker: returns when all members have joined. */
TELEGRAD_API int32_t telegrad_job_join(telegrad_job* job,
                                       telegrad_status* status);
/* A process without a worker: TELEGRAD_OK when the job has ended in order,
 * TELEGRAD_PENDING when it has not by then. */
TELEGRAD_API int32_t telegrad_job_serve(telegrad_job* job, double timeout_s,
                                        telegrad_status* status);
/* Of the worker, after it has joined; -1 before. */
TELEGRAD_API int32_t telegrad_job_rank(const telegrad_job* job);
TELEGRAD_API int32_t telegrad_job_num_workers(const telegrad_job* job);
TELEGRAD_API int32_t telegrad_job_num_servers(const telegrad_job* job);
/* All workers call it. At most operation_timeout_s. */
TELEGRAD_API int32_t telegrad_job_barrier(telegrad_job* job,
                                          telegrad_status* status);
/* Ends the job for all members, who get `exit_code` (1 to 255, else 70; 33:
 * somebody wanted it) and `message`, and what this process waits for. */
TELEGRAD_API void telegrad_job_fail(telegrad_job* job, int32_t exit_code,
                                    const char* message);
/* Leaves in order, after the stores were closed, and waits for the parts on
 * threads, which end when all workers have left; after `timeout_s` they are
 * ended. Frees the handle in any case. */
TELEGRAD_API int32_t telegrad_job_close(telegrad_job* job, double timeout_s,
                                        telegrad_status* status);

/* ---- stores ---- */

typedef struct telegrad_store telegrad_store;
typedef struct telegrad_queue telegrad_queue;

enum telegrad_dtype {
  TELEGRAD_FLOAT32 = 0,
  TELEGRAD_FLOAT16 = 1,
  TELEGRAD_BFLOAT16 = 2,
  TELEGRAD_INT32 = 3
};

/* Contiguous elements that the caller owns; ready where `stream` stands. */
typedef struct telegrad_tensor {
  void* data;
  int64_t num_elems; /* 0: of a store, where `data` may be NULL then */
  int32_t dtype;     /* telegrad_dtype */
  int32_t device;    /* -1: host memory; else a GPU's number in CUDA */
  uint64_t stream;   /* a cudaStream_t; 0 in host memory */
} telegrad_tensor;

/* NULL and 0 stand for what telegrad_compression_init sets. */
typedef struct telegrad_compression {
  uint32_t size;         /* set by telegrad_compression_init */
  int32_t batch_size;    /* for thresholds in the unit "0.5:batch"; 1 */
  const char* type;      /* "none"; "2bit", "topk:0.01": docs/codecs.md; "auto":
                            of `allow`, by telegrad_store_after_step */
  const char* rules;     /* "bn|bias=none;*=int8": the first match wins */
  const char* threshold; /* "auto"; "0.5", "0.5:batch", "2rms" */
  const char* reply;     /* "auto"; "dense", "sum", "reencode" */
  const char* packing;   /* "plain"; "radix", "auto" */
  const char* nonfinite; /* "error"; "zero", "propagate" */
  int64_t min_bytes;     /* smaller tensors go dense; 0 */
  int64_t warmup_steps;  /* the first so many steps go dense; 0 */
  int32_t has_guard;     /* 1: a codec that harms is given up */
  float momentum_rate;   /* of `momentum`, 0 to 1, 1 excluded; 0 */
  const char* allow;     /* codecs that "auto" may use, the preferred one first:
                            "fp16,2bit"; "int2" */
  const char* momentum; /* "off"; "nesterov", "heavyball": this worker keeps it,
                           in front of the codec; whoever steps applies none */
} telegrad_compression;
TELEGRAD_API void telegrad_compression_init(telegrad_compression* compression,
                                            uint64_t size);

enum telegrad_optimizer_kind {
  TELEGRAD_RESCALE = -1, /* none: pulls give sums times rescale_grad */
  TELEGRAD_SGD = 0,      /* with momentum */
  TELEGRAD_NAG = 1,      /* with Nesterov's */
  TELEGRAD_ADAM = 2,     /* decay is added to the gradient */
  TELEGRAD_ADAMW = 3,    /* weights decay by themselves */
  TELEGRAD_ADAGRAD = 4,  /* over the root of the sum of squares */
  TELEGRAD_RMSPROP = 5   /* of their mean */
};

/* Run by the store, but for RESCALE: pulls give weights. Rules: docs/c.md. */
typedef struct telegrad_optimizer {
  uint32_t size;       /* set by telegrad_optimizer_init */
  int32_t kind;        /* telegrad_optimizer_kind; TELEGRAD_SGD */
  float learning_rate; /* 0.01 */
  float momentum;      /* 0; of sgd and nag */
  float weight_decay;  /* 0 */
  float rescale_grad;  /* 1; of the sum over workers */
  float beta1;         /* 0.9; of adam and adamw */
  float beta2;         /* 0.999; of these and rmsprop */
  float epsilon;       /* 1e-8; of all but sgd and nag */
  int32_t reserved;
} telegrad_optimizer;
TELEGRAD_API void telegrad_optimizer_init(telegrad_optimizer* optimizer,
                                          uint64_t size);

/* Steps a key's `weight` with a round's sum over devices, `gradient`; both are
 * [num_elems] of float32 in host memory, and the call's alone. Of one key it is
 * called once a round, in order; of several at the same time, on threads of the
 * store's, so it may not wait for the store. Another value than 0 ends the
 * operation with TELEGRAD_INTERNAL, and the weight stays as it was. */
typedef int32_t (*telegrad_updater)(void* data, uint32_t key,
                                    const float* gradient, float* weight,
                                    int64_t num_elems);

typedef struct telegrad_store_options {
  uint32_t size;            /* set by telegrad_store_options_init */
  int32_t num_devices;      /* tensors of this process for each key; 1 */
  int64_t max_staleness;    /* of "dist_async"; -1, the standard: any number */
  telegrad_updater updater; /* NULL; of "local" and "device", instead of an
                               optimizer: pulls give weights, init needs them */
  void* updater_data;       /* what it is called with; NULL */
  int32_t drop_slowest, reserved; /* see telegrad_store_catch_up; 0, 0 */
} telegrad_store_options;
TELEGRAD_API void telegrad_store_options_init(telegrad_store_options* options,
                                              uint64_t size);

/* Bytes since the first init, without its own: raw as elements, or frames. */
typedef struct telegrad_stats {
  int64_t push_raw_bytes;
  int64_t push_wire_bytes;
  int64_t pull_raw_bytes;
  int64_t pull_wire_bytes;
  int64_t num_nonfinite; /* elements that policy zero replaced */
  int64_t num_frames;    /* sent and received */
  int64_t max_staleness; /* steps ahead of the slowest; or rounds late */
  double mean_staleness;
  int64_t num_late; /* with drop_slowest: pushes of chunks */
} telegrad_stats;

/* `type`: "local", "device", "dist_sync", "dist_async", "allreduce". A job has
 * one store; NULL: of this process alone. `options` may be NULL. */
TELEGRAD_API int32_t telegrad_store_create(
    telegrad_job* job, const char* type, const telegrad_store_options* options,
    telegrad_store** store, telegrad_status* status);
/* Before the first init. */
TELEGRAD_API int32_t telegrad_store_set_compression(
    telegrad_store* store, const telegrad_compression* compression,
    telegrad_status* status);
/* Before the first init; later, between rounds, by all alike, for new rates. */
TELEGRAD_API int32_t telegrad_store_set_optimizer(
    telegrad_store* store, const telegrad_optimizer* optimizer,
    telegrad_status* status);
/* Adds `num` tensors by name and gives their keys; all workers call it with
 * the same. With `has_values` all get worker 0's values, else `data` of
 * `tensors` is not looked at. `tensors` [num * num_devices], a name's devices
 * behind each other. `rates` [num * 2]: what learning rate and weight decay are
 * multiplied by for each tensor; NULL: 1. */
TELEGRAD_API int32_t telegrad_store_init(telegrad_store* store, int64_t num,
                                         const char* const* names,
                                         const telegrad_tensor* tensors,
                                         const float* rates, int32_t has_values,
                                         uint32_t* keys,
                                         telegrad_status* status);
/* The same, of tensors of which some have rows: `row_elems` [num], 0 for none.
 * They are of float32, in host memory, and go without a codec. */
TELEGRAD_API int32_t telegrad_store_init_rows(
    telegrad_store* store, int64_t num, const char* const* names,
    const telegrad_tensor* tensors, const int64_t* row_elems,
    const float* rates, int32_t has_values, uint32_t* keys,
    telegrad_status* status);

/* One operation over `num` keys: sums over all workers, or new weights where
 * the store runs the optimizer. `outs` may be `grads`; memory is untouched
 * until the operation is done. `priorities` may be NULL; larger go first. With
 * a queue the call returns at once, and the queue gives `tag` when all keys are
 * done; with NULL it returns then. */
TELEGRAD_API int32_t telegrad_store_push_pull(
    telegrad_store* store, int64_t num, const uint32_t* keys,
    const telegrad_tensor* grads, const telegrad_tensor* outs,
    const int32_t* priorities, telegrad_queue* queue, uint64_t tag,
    telegrad_status* status);
TELEGRAD_API int32_t telegrad_store_push(telegrad_store* store, int64_t num,
                                         const uint32_t* keys,
                                         const telegrad_tensor* grads,
                                         const int32_t* priorities,
                                         telegrad_queue* queue, uint64_t tag,
                                         telegrad_status* status);
TELEGRAD_API int32_t telegrad_store_pull(telegrad_store* store, int64_t num,
                                         const uint32_t* keys,
                                         const telegrad_tensor* outs,
                                         const int32_t* priorities,
                                         telegrad_queue* queue, uint64_t tag,
                                         telegrad_status* status);

/* The numbers of the rows that a tensor of an operation holds one behind the
 * other, in any order; the caller's until the operation is done. */
typedef struct telegrad_rows {
  const int64_t* rows;
  int64_t num; /* -1: the tensor is whole */
} telegrad_rows;
/* Push and pull of some rows; `rows` is [num * num_devices], as the tensors. A
 * push adds nothing to other rows, and what it repeats is added. */
TELEGRAD_API int32_t telegrad_store_push_rows(
    telegrad_store* store, int64_t num, const uint32_t* keys,
    const telegrad_tensor* grads, const telegrad_rows* rows,
    const int32_t* priorities, telegrad_queue* queue, uint64_t tag,
    telegrad_status* status);
TELEGRAD_API int32_t telegrad_store_pull_rows(
    telegrad_store* store, int64_t num, const uint32_t* keys,
    const telegrad_tensor* outs, const telegrad_rows* rows,
    const int32_t* priorities, telegrad_queue* queue, uint64_t tag,
    telegrad_status* status);
/* All get worker `root`'s values, which pulls give until the next round. */
TELEGRAD_API int32_t telegrad_store_broadcast(
    telegrad_store* store, int64_t num, const uint32_t* keys, int32_t root,
    const telegrad_tensor* values, telegrad_queue* queue, uint64_t tag,
    telegrad_status* status);

/* Bytes that a call made. */
typedef struct telegrad_bytes telegrad_bytes;
TELEGRAD_API const void* telegrad_bytes_data(const telegrad_bytes* bytes);
TELEGRAD_API uint64_t telegrad_bytes_size(const telegrad_bytes* bytes);
TELEGRAD_API void telegrad_bytes_free(telegrad_bytes* bytes);

/* What the store's optimizer keeps (docs/wire_format.md has the bytes). All
 * workers call it, between rounds; worker 0 gets it, the others no bytes. */
TELEGRAD_API int32_t telegrad_store_save_states(telegrad_store* store,
                                                telegrad_bytes** states,
                                                telegrad_status* status);
/* Worker 0's bytes count, which may come from anywhere. They fit the same
 * tensors and kind of optimizer, with however many servers and workers; what
 * does not fit is refused on all workers, and changes nothing. */
TELEGRAD_API int32_t telegrad_store_load_states(telegrad_store* store,
                                                const void* states,
                                                uint64_t num_bytes,
                                                telegrad_status* status);

/* What codecs keep of a tensor on this worker between rounds: residuals, agreed
 * scales. Rank 0's has the servers', too (docs/checkpoints.md has the bytes).
 * While no worker has an operation under way; tensors in host memory. */
TELEGRAD_API int32_t telegrad_store_save_codec(telegrad_store* store,
                                               uint32_t key,
                                               telegrad_bytes** state,
                                               telegrad_status* status);
/* Bytes of the same rank, of a store with as many workers and servers and the
 * same tensors and settings. No worker may begin a round before all have
 * loaded. After an error the store is of no use. */
TELEGRAD_API int32_t telegrad_store_load_codec(telegrad_store* store,
                                               uint32_t key, const void* state,
                                               uint64_t num_bytes,
                                               telegrad_status* status);

/* Of type "auto": all workers call it after each step, while no operation runs.
 * Seconds on this worker of the step, of its exchange (from the first push to
 * the last answer), and those in which nothing else was done. The first call
 * measures codecs for some tenths of a second. What was decided is JSON,
 * [{"step": 19, "choice": "2bit for ...", "why": "..."}], mostly []. */
TELEGRAD_API int32_t telegrad_store_after_step(telegrad_store* store,
                                               double step_s, double exchange_s,
                                               double wait_s,
                                               telegrad_bytes** decisions,
                                               telegrad_status* status);

/* What "auto" keeps, for a later run: JSON, or no bytes while it measures. */
TELEGRAD_API int32_t telegrad_store_save_choice(telegrad_store* store,
                                                telegrad_bytes** choice,
                                                telegrad_status* status);
/* Of a store with the same tensors and settings, before its first step: it goes
 * on with that choice; with no bytes it measures. All workers call it. */
TELEGRAD_API int32_t telegrad_store_load_choice(telegrad_store* store,
                                                const void* choice,
                                                uint64_t num_bytes,
                                                telegrad_status* status);

TELEGRAD_API int32_t telegrad_store_stats(telegrad_store* store,
                                          telegrad_stats* stats,
                                          telegrad_status* status);
/* Operations in flight are cancelled. Leaves the job; frees the handle. */
TELEGRAD_API void telegrad_store_close(telegrad_store* store);

/* ---- completions ---- */

TELEGRAD_API int32_t telegrad_queue_create(telegrad_queue** queue,
                                           telegrad_status* status);
/* The next operation that is done: its tag, and its own code and status.
 * TELEGRAD_PENDING when none is within `timeout_s`. One thread at a time. */
TELEGRAD_API int32_t telegrad_queue_next(telegrad_queue* queue,
                                         double timeout_s, uint64_t* tag,
                                         telegrad_status* status);
/* Ends the operations with this tag that are not done; each still comes out of
 * telegrad_queue_next. The memory is the caller's again when this returns. */
TELEGRAD_API void telegrad_queue_cancel(telegrad_queue* queue, uint64_t tag);
/* Cancels what is left. */
TELEGRAD_API void telegrad_queue_free(telegrad_queue* queue);

#ifdef __cplusplus
} /* extern "C" */
#endif
#include <telegrad_tools.h>
