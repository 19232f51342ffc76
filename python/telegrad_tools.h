/* What looks at a store, and what needs none: collectives, plans, this machine.
 * Included by telegrad.h. */
#pragma once

#include <stdint.h>
#include <telegrad.h>
#include <telegrad_codecs.h>
#include <telegrad_ends.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a store does ---- */

/* Before the init that adds a tensor of this name: what it pushes, which is no
 * gradient, goes without the momentum of telegrad_compression. */
TELEGRAD_API int32_t telegrad_store_without_momentum(telegrad_store* store,
                                                     const char* name,
                                                     telegrad_status* status);

/* With drop_slowest K a round of "dist_sync", whose optimizer is the store's,
 * does not wait for K of the workers. A push that comes when its round is over
 * counts in the next one, and is answered at once, with the newest weights.
 * `missed` gets how many rounds have passed in which this worker pushed
 * nothing; its next pushes are of the open one. While no operation runs. */
TELEGRAD_API int32_t telegrad_store_catch_up(telegrad_store* store,
                                             int64_t* missed,
                                             telegrad_status* status);
/* Rounds wait for all from now on, until `takes_all` is 0 again: all workers
 * call it before the same step, while no operation runs. Behind such a round
 * nothing pushed is left out, and all have the same weights. */
TELEGRAD_API int32_t telegrad_store_take_all(telegrad_store* store,
                                             int32_t takes_all,
                                             telegrad_status* status);

/* For metrics: a step took so many seconds, in wait_s of which it only waited
 * for communication; both are 0 or more. */
TELEGRAD_API int32_t telegrad_store_note_step(telegrad_store* store,
                                              double step_s, double wait_s,
                                              telegrad_status* status);

/* With `is_on` the begin and the end of each key's operations are noted from
 * now on, with 0 no more. `events` may be NULL; else it gets those that ended
 * since the call before: Chrome's trace events, an array of JSON, of process
 * `rank`, a row for each key and chunk; times are microseconds since 1970. */
TELEGRAD_API int32_t telegrad_store_timeline(telegrad_store* store,
                                             int32_t is_on,
                                             telegrad_bytes** events,
                                             telegrad_status* status);

/* Until the results of the operation with this tag are queued on their device;
 * `stream` waits for them there, the host does not. In host memory until it is
 * done. It still comes out of telegrad_queue_next. TELEGRAD_PENDING when it is
 * not so far within `timeout_s`. Any thread. */
TELEGRAD_API int32_t telegrad_queue_wait_on(telegrad_queue* queue, uint64_t tag,
                                            uint64_t stream, double timeout_s,
                                            telegrad_status* status);

/* JSON, an array: of each tensor its codec, why, and how it does. While no
 * operation runs. `needed` counts the end's 0; text is written if it fits. */
TELEGRAD_API int32_t telegrad_store_report(telegrad_store* store, char* text,
                                           uint64_t text_bytes,
                                           uint64_t* needed,
                                           telegrad_status* status);

/* As telegrad_store_save_codec, of this worker alone, rank 0, too, whatever
 * others do: while it has no operation of this key under way, also when the job
 * has failed, for who goes on without those that have died. */
TELEGRAD_API int32_t telegrad_store_save_own_codec(telegrad_store* store,
                                                   uint32_t key,
                                                   telegrad_bytes** state,
                                                   telegrad_status* status);

/* ---- collectives ---- */

/* The workers of a job, to sum and share dense arrays in host memory without a
 * store. docs/collectives.md has algorithms and rounding. */
typedef struct telegrad_group telegrad_group;

enum telegrad_group_dtype { /* beside those of telegrad_dtype */
                            TELEGRAD_INT64 = 4,
                            TELEGRAD_FLOAT64 = 5,
                            TELEGRAD_UINT8 = 6,
                            TELEGRAD_INT8 = 7,
                            TELEGRAD_BOOL = 8 /* one byte: 0 is false */
};

enum telegrad_reduce_op { /* of bools: sum and max are "or", the others "and" */
                          TELEGRAD_SUM = 0,
                          TELEGRAD_MIN = 1,
                          TELEGRAD_MAX = 2,
                          TELEGRAD_PRODUCT = 3
};

/* All workers call it, after the join; beside a store, too. The job outlives
 * it. All then make the same calls in the same order, of the same sizes and
 * types: what differs is refused on all. A call returns when it is done here,
 * at most operation_timeout_s after its last progress; after an error all
 * further ones fail. `counts` are [workers], elements by rank; arrays of
 * several ranks lie by rank without gaps. */
TELEGRAD_API int32_t telegrad_group_create(telegrad_job* job,
                                           telegrad_group** group,
                                           telegrad_status* status);
TELEGRAD_API int32_t telegrad_group_rank(const telegrad_group* group);
TELEGRAD_API int32_t telegrad_group_size(const telegrad_group* group);
/* `data` [n] becomes the reduction over the workers; `op`: telegrad_reduce_op.
 */
TELEGRAD_API int32_t telegrad_group_allreduce(telegrad_group* group,
                                              const telegrad_tensor* data,
                                              int32_t op,
                                              telegrad_status* status);
/* The same by "ring", "recursive_doubling", "halving_doubling", "tree" or
 * "two_level", the same on all; "auto" or NULL: by size, workers, hosts and
 * link, or what $TELEGRAD_ALLREDUCE of all workers says. */
TELEGRAD_API int32_t telegrad_group_allreduce_by(telegrad_group* group,
                                                 const telegrad_tensor* data,
                                                 int32_t op,
                                                 const char* algorithm,
                                                 telegrad_status* status);
/* `data` [n] of worker `root` to all. */
TELEGRAD_API int32_t telegrad_group_broadcast(telegrad_group* group,
                                              const telegrad_tensor* data,
                                              int32_t root,
                                              telegrad_status* status);
/* `in` [n]; `out` [workers * n]. */
TELEGRAD_API int32_t telegrad_group_allgather(telegrad_group* group,
                                              const telegrad_tensor* in,
                                              const telegrad_tensor* out,
                                              telegrad_status* status);
/* `in` [counts[rank]]; `out` [sum of counts]; the same counts on all. */
TELEGRAD_API int32_t telegrad_group_allgatherv(telegrad_group* group,
                                               const telegrad_tensor* in,
                                               const telegrad_tensor* out,
                                               const uint64_t* counts,
                                               telegrad_status* status);
/* `in` [sum of counts]; `out` [counts[rank]] becomes the reduction of this
 * rank's block of all `in`; the same counts on all; NULL: equal ones. */
TELEGRAD_API int32_t telegrad_group_reduce_scatter(telegrad_group* group,
                                                   const telegrad_tensor* in,
                                                   const telegrad_tensor* out,
                                                   const uint64_t* counts,
                                                   int32_t op,
                                                   telegrad_status* status);
/* Block i of `in` goes to rank i, block i of `out` comes from there. Both
 * counts NULL: equal blocks. */
TELEGRAD_API int32_t telegrad_group_alltoallv(telegrad_group* group,
                                              const telegrad_tensor* in,
                                              const uint64_t* send_counts,
                                              const telegrad_tensor* out,
                                              const uint64_t* recv_counts,
                                              telegrad_status* status);
/* Returns after all have called it. */
TELEGRAD_API int32_t telegrad_group_barrier(telegrad_group* group,
                                            telegrad_status* status);
/* All of `group` call it with the same list of different ranks. These get a
 * group, freed before the job's end, whose ranks are in the list's order;
 * `*part` of the others is NULL. */
TELEGRAD_API int32_t telegrad_group_split(telegrad_group* group,
                                          const int32_t* ranks,
                                          int32_t num_ranks,
                                          telegrad_group** part,
                                          telegrad_status* status);
/* In place of the job's operation_timeout_s, from now on. */
TELEGRAD_API int32_t telegrad_group_set_timeout(telegrad_group* group,
                                                double timeout_s,
                                                telegrad_status* status);

/* Point to point: in any order, from any thread, several at a time, beside
 * collectives. Between two ranks messages of one tag keep their order. A size
 * or type that differs is an error of the receive, and of the send if it still
 * waits; the group goes on. */

/* Returns when the memory may be used again. */
TELEGRAD_API int32_t telegrad_group_send(telegrad_group* group,
                                         const telegrad_tensor* data,
                                         int32_t to, uint32_t tag,
                                         telegrad_status* status);
/* `from` -1: any rank. `sender`, which may be NULL, gets the rank. */
TELEGRAD_API int32_t telegrad_group_recv(telegrad_group* group,
                                         const telegrad_tensor* data,
                                         int32_t from, uint32_t tag,
                                         int32_t* sender,
                                         telegrad_status* status);

/* Collectives that go on while the caller does something else: one behind the
 * other, in the order in which they were started, on a thread of the group's.
 * A call of the functions above waits for the one that runs, not for those that
 * come behind it. The arrays are the group's until the end. */
typedef struct telegrad_work telegrad_work;

/* `operation`: telegrad_operation, TELEGRAD_JOIN apart; blocks are equal. `in`
 * and `out` are as above: NULL where there is none; `in` is the `data` of an
 * allreduce or broadcast. `number`: telegrad_reduce_op, or the root. What is
 * wrong is an error of telegrad_work_wait. */
TELEGRAD_API int32_t telegrad_group_start(telegrad_group* group,
                                          int32_t operation,
                                          const telegrad_tensor* in,
                                          const telegrad_tensor* out,
                                          int32_t number, telegrad_work** work,
                                          telegrad_status* status);
/* The operation's result, or TELEGRAD_PENDING where it has not ended in that
 * time. From any thread, as often as one likes, also behind the group's end. */
TELEGRAD_API int32_t telegrad_work_wait(telegrad_work* work, double timeout_s,
                                        telegrad_status* status);
/* The operation goes on. */
TELEGRAD_API void telegrad_work_free(telegrad_work* work);

/* Where other workers may still need what was sent last, after a barrier. What
 * was started and has not begun ends with TELEGRAD_CANCELLED. */
TELEGRAD_API void telegrad_group_free(telegrad_group* group);

/* ---- operations ---- */

/* Asynchronous operations of a job's workers, as Horovod's: each worker submits
 * by name, in any order; one thread of each process agrees with the others on
 * what is ready everywhere and runs it. Arrays are in host memory or, alike on
 * all workers, on GPUs. docs/operations.md. Any thread. */
typedef struct telegrad_operations telegrad_operations;

enum telegrad_operation {
  TELEGRAD_ALLREDUCE = 0,
  TELEGRAD_ALLGATHER = 1,
  TELEGRAD_BROADCAST = 2,
  TELEGRAD_REDUCE_SCATTER = 3,
  TELEGRAD_ALLTOALL = 4,
  TELEGRAD_BARRIER = 5,
  TELEGRAD_JOIN = 6
};

/* Beside telegrad_reduce_op, of operations alone. */
enum telegrad_operation_op { TELEGRAD_AVERAGE = 4, TELEGRAD_ADASUM = 5 };

typedef struct telegrad_operations_options {
  uint32_t size;
  int32_t cache_capacity;  /* tensors whose requests cost a bit; 1024 */
  int64_t fusion_bytes;    /* of allreduces that run as one; 64 MiB */
  double cycle_s;          /* a request is told at most that late; 0.001 */
  double stall_warning_s;  /* what a worker lacks is logged; 60, 0: never */
  double stall_deadline_s; /* and ends with names of workers; 0: never */
  const char* timeline;    /* a file for Chrome's trace events; NULL: none */
  int32_t marks_cycles;    /* 1: the timeline has cycles, too */
  /* 1: fusion_bytes and cycle_s are tuned while the operations run, as worker 0
   * measures and tells all. */
  int32_t autotune;
  const char* autotune_log; /* a file of worker 0, as CSV; NULL: none */
  int32_t autotune_warmup;  /* samples that come first and do not count; 3 */
  int32_t autotune_steps;   /* of a sample: times that one tensor comes; 10 */
} telegrad_operations_options;

/* `size` bytes of the standard settings. */
TELEGRAD_API void telegrad_operations_options_init(
    telegrad_operations_options* options, uint64_t size);

typedef struct telegrad_operation_request {
  uint32_t size;
  int32_t operation; /* telegrad_operation */
  const char* name;  /* the same on all workers; once at a time */
  telegrad_tensor in;
  /* On the device of `in`, and may be it; NULL: the library keeps the result.
   * Has its elements, which an allgather knows only at its end. */
  telegrad_tensor out;
  const int64_t* shape; /* [num_dims] of `in`; NULL: one dimension */
  int32_t num_dims;
  int32_t op;            /* telegrad_reduce_op or telegrad_operation_op */
  double prescale;       /* `in` is multiplied by it first; 1 */
  double postscale;      /* and the result by this; 1 */
  const int64_t* splits; /* alltoall: rows for each; NULL: equal */
  int32_t num_splits;
  int32_t root;        /* broadcast: a rank of the job */
  int32_t process_set; /* 0: all */
  /* Requests of one group run together. The number is the same on all workers
   * and, for speed, in each step. 0: no group. */
  int32_t group_size;
  uint64_t group;
  /* Of an allreduce of op sum or average, by a store: a codec (docs/codecs.md);
   * "store": what the store's setting has for the name. NULL: none. */
  const char* codec;
} telegrad_operation_request;

TELEGRAD_API void telegrad_operation_request_init(
    telegrad_operation_request* request, uint64_t size);

/* All workers call it, after the join. NULL: standard settings. The job
 * outlives it. */
TELEGRAD_API int32_t telegrad_operations_create(
    telegrad_job* job, const telegrad_operations_options* options,
    telegrad_operations** operations, telegrad_status* status);
/* For requests with a codec: a store of the type "allreduce" of the same job,
 * which outlives the operations and has no keys of its own. Each worker calls
 * it once, before its first such request. */
TELEGRAD_API int32_t
telegrad_operations_use_store(telegrad_operations* operations,
                              telegrad_store* store, telegrad_status* status);
/* Memory of the request is the operation's until it is done; the rest is
 * copied. Refused at once: what this worker can see to be wrong, a name that is
 * under way, anything after the end. */
TELEGRAD_API int32_t telegrad_operations_submit(
    telegrad_operations* operations, const telegrad_operation_request* request,
    int64_t* handle, telegrad_status* status);
TELEGRAD_API int32_t telegrad_operations_poll(telegrad_operations* operations,
                                              int64_t handle, int32_t* done,
                                              telegrad_status* status);
/* The operation's own error; TELEGRAD_PENDING: not done within `timeout_s`,
 * below 0 without a limit: it ends with the job's members. */
TELEGRAD_API int32_t telegrad_operations_wait(telegrad_operations* operations,
                                              int64_t handle, double timeout_s,
                                              telegrad_status* status);
/* Of one that is done: where the result lies, until the release, and its
 * elements. `rows`, NULL or [members of the process set]: the first dimensions
 * that came from each, of an allgather and an alltoall. A join's result is one
 * int64: the rank that joined last. */
TELEGRAD_API int32_t telegrad_operations_result(
    telegrad_operations* operations, int64_t handle, const void** data,
    int64_t* num_elems, int64_t* rows, telegrad_status* status);
/* The handle is unknown from now on; one under way goes on to its end. */
TELEGRAD_API int32_t telegrad_operations_release(
    telegrad_operations* operations, int64_t handle, telegrad_status* status);

/* Ends it on all workers that have submitted it, unless it is ready on all
 * before they hear of it; `handle` stays. */
TELEGRAD_API int32_t telegrad_operations_cancel(telegrad_operations* operations,
                                                int64_t handle,
                                                telegrad_status* status);

/* From now on this worker's events go into the file `path`, of rank 2 with
 * ".2" behind it, which is written by the stop, or with the end. One at a time;
 * other workers need not call it. */
TELEGRAD_API int32_t telegrad_operations_start_timeline(
    telegrad_operations* operations, const char* path, int32_t marks_cycles,
    telegrad_status* status);
TELEGRAD_API int32_t telegrad_operations_stop_timeline(
    telegrad_operations* operations, telegrad_status* status);

/* All workers call it with the same ranks, which rise; `id` is for
 * requests. Waits for all. */
TELEGRAD_API int32_t telegrad_operations_add_process_set(
    telegrad_operations* operations, const int32_t* ranks, int32_t num_ranks,
    int32_t* id, telegrad_status* status);
TELEGRAD_API int32_t telegrad_operations_remove_process_set(
    telegrad_operations* operations, int32_t id, telegrad_status* status);
/* Agrees with the others on the end: what is under way anywhere ends with an
 * error that names this worker. */
TELEGRAD_API void telegrad_operations_free(telegrad_operations* operations);

/* ---- how a job's data goes, and this machine ---- */

/* After the join: what the members do and why, as JSON: the plan of
 * `telegrad-topo plan --json` (docs/planner.md), without tensors. `needed`
 * counts the end's 0; text is written if it fits. */
TELEGRAD_API int32_t telegrad_job_plan(const telegrad_job* job, char* text,
                                       uint64_t text_bytes, uint64_t* needed,
                                       telegrad_status* status);

/* Numbers of the job's members in this process, docs/numbers.md, in Prometheus'
 * text format; at any time. The same can be read where metrics_port is set, at
 * http://ADDRESS/metrics ("": nowhere), and in metrics_file, every 10 s and at
 * the end. Beyond loopback, at `bind`, with a secret alone. */
TELEGRAD_API int32_t telegrad_job_metrics(const telegrad_job* job, char* text,
                                          uint64_t text_bytes, uint64_t* needed,
                                          telegrad_status* status);
TELEGRAD_API const char* telegrad_job_metrics_address(const telegrad_job* job);

/* What the job's members in this process did last, for PyTorch's fr_trace
 * (docs/when_a_machine_dies.md): FOLDER/worker_0, FOLDER/server_0. `text` has
 * the files' names, a line each. NULL: the folder of options.flight_recorder,
 * where they are written when the job fails, too. At most a second. */
TELEGRAD_API int32_t telegrad_job_dump_flight_record(
    const telegrad_job* job, const char* folder, char* text,
    uint64_t text_bytes, uint64_t* needed, telegrad_status* status);

/* JSON: the version, which transports this library can open here, why it has
 * no GPU, and its codecs with their options. */
TELEGRAD_API int32_t telegrad_about(char* text, uint64_t text_bytes,
                                    uint64_t* needed, telegrad_status* status);
/* JSON: what is there (docs/topology_json.md), and what is wrong with it
 * (docs/doctor.md). */
TELEGRAD_API int32_t telegrad_topology(char* text, uint64_t text_bytes,
                                       uint64_t* needed,
                                       telegrad_status* status);
TELEGRAD_API int32_t telegrad_doctor(char* text, uint64_t text_bytes,
                                     uint64_t* needed, telegrad_status* status);

#ifdef __cplusplus
} /* extern "C" */
#endif
