/* How jobs end, and how they go on without those who died, or with others who
 * come. Included by telegrad.h, by way of telegrad_tools.h. */
#pragma once

#include <stdint.h>
#include <telegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why the job has failed; TELEGRAD_OK: it has not. */
TELEGRAD_API int32_t telegrad_job_failure(const telegrad_job* job,
                                          telegrad_status* status);
/* exit() closes these jobs, and of each the store (NULL: it has none): with
 * status 0 as telegrad_job_close within `timeouts_s`, with another one it fails
 * for all. Handles, and arrays of operations under way, are its own from now
 * on. */
TELEGRAD_API int32_t telegrad_jobs_close_at_exit(int64_t num,
                                                 telegrad_job* const* jobs,
                                                 telegrad_store* const* stores,
                                                 const double* timeouts_s,
                                                 telegrad_status* status);
/* Within `timeout_s`: why the job has failed; that a worker has left it, so
 * that `what` of this one can never end, which fails it for all; else OK. */
TELEGRAD_API int32_t telegrad_job_need_all(telegrad_job* job, const char* what,
                                           double timeout_s,
                                           telegrad_status* status);

/* What the members of this process wait for, in words: a scheduler that is not
 * there after some seconds; else "". Who has asked by then says it; else it is
 * on standard error. `needed` counts the end's 0; text is written if it fits.
 */
TELEGRAD_API int32_t telegrad_job_waits_for(const telegrad_job* job, char* text,
                                            uint64_t text_bytes,
                                            uint64_t* needed,
                                            telegrad_status* status);

/* ---- jobs with elastic_min ---- */

/* Such a job goes on when workers die, while elastic_min are left, and lets
 * others come until it has elastic_max. Calls of the others give
 * TELEGRAD_EPOCH_ENDED then, and who died.
 *
 * All workers call it, when nothing is under way.
 * TELEGRAD_EPOCH_ENDED where others waited to come in, who do in the next
 * epoch. */
TELEGRAD_API int32_t telegrad_job_let_in(telegrad_job* job,
                                         telegrad_status* status);
/* After TELEGRAD_EPOCH_ENDED, with the store, groups and operations closed:
 * returns when all who are left, and who came, have called it. Ranks and counts
 * are others then; stores begin anew, with the elder's values. Who has not
 * called it within join_timeout_s counts as dead. */
TELEGRAD_API int32_t telegrad_job_reconfigure(telegrad_job* job,
                                              telegrad_status* status);
/* From 1 on; -1 before the worker joins. */
TELEGRAD_API int64_t telegrad_job_epoch(const telegrad_job* job);
/* The first rank of those that are in the job longest, who have what was
 * trained; 0 without elastic_min, -1 before the worker joins. */
TELEGRAD_API int32_t telegrad_job_elder(const telegrad_job* job);
/* All workers call it with bytes of theirs, at most 1 MiB; each gets the
 * elder's. */
TELEGRAD_API int32_t telegrad_job_share(telegrad_job* job, const void* mine,
                                        uint64_t mine_bytes,
                                        telegrad_bytes** elders,
                                        telegrad_status* status);

#ifdef __cplusplus
}
#endif
