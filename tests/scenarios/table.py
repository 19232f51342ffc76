"""The forty ways in which something fails, what must come of each, and the tests that show it.

A test is FILE::CLASS or FILE::CLASS.TEST of Python, or FILE::SUITE.CASE of GoogleTest,
where the suite's parameters are left out; it needs all of them. `codes`: those of all
processes that the tests of Python start, no more and no fewer; None: tests that run in one
process, or that start processes of other programs.
"""
from typing import NamedTuple, Optional

SYSTEM = "tests/system/"
PYTHON = "tests/python/"
CLUSTER = "tests/cluster/"
JOB = "tests/kvstore/job/"
KILL, TERM = -9, -15


class Row(NamedTuple):
    number: int
    fault: str
    expected: str
    tests: tuple
    codes: Optional[frozenset] = None
    not_here: str = ""  # why no test can show it on any machine of ours


def row(number, fault, expected, *tests, codes=None, not_here=""):
    return Row(number, fault, expected, tests, codes and frozenset(codes), not_here)


MEMBERS = SYSTEM + "members_test.py::Members.test_"
FAILURE = SYSTEM + "failure_test.py::Failure.test_"
ELASTIC = SYSTEM + "elastic_test.py::Elastic.test_"
RESUME = SYSTEM + "resume_test.py::Resume.test_"
PLACES = SYSTEM + "surroundings_test.py::"
FAULTS = SYSTEM + "faults_test.py::"
SECURITY = SYSTEM + "security_test.py::Security.test_"
LAUNCHERS = SYSTEM + "launchers_test.py::Dmlc.test_"
LINK = CLUSTER + "faulty_link_test.py::FaultyLink.test_"
WHOEVER = MEMBERS + "whoever_is_killed_all_others_name_it_and_resume_has_the_bits"

ROWS = (
    row(1, "a worker of four is killed",
        "six others name it and end with 20 within 10 s, no port is left; --resume has the bits",
        WHOEVER, FAILURE + "killed_worker_is_named_once_and_gives_20",
        codes=(0, KILL, 20, 23, 24)),
    row(2, "the same with --elastic",
        "the others go on from the newest checkpoint with the bits of a run resumed there",
        ELASTIC + "the_others_go_on_with_the_bits_of_a_run_that_was_resumed",
        ELASTIC + "a_killed_one_has_another_in_its_place", codes=(0,)),
    row(3, "fewer than --elastic MIN are left",
        "20, below_min_workers, and the checkpoint is whole",
        ELASTIC + "fewer_than_the_least_end_with_20_and_a_checkpoint", codes=(20,)),
    row(4, "a server is killed",
        "all name it and end with 23 within 10 s; --resume has the bits; of several, "
        "--elastic goes on",
        WHOEVER, ELASTIC + "one_of_several_servers_may_die",
        ELASTIC + "the_only_server_ends_the_job_and_resume_goes_on"),
    row(5, "the scheduler is killed", "all end with 24 within 10 s; --resume has the bits",
        WHOEVER, FAILURE + "each_other_one_that_is_killed_has_its_code"),
    row(6, "a dead worker was stopped, and wakes",
        "it ends with 22; the others with 20, or go on with --elastic and right bits",
        MEMBERS + "one_that_wakes_after_its_verdict_is_fenced", codes=(0, 20, 22)),
    row(7, "a worker, a server stops for 5 s",
        "suspect, then recovered; nobody dies and the bits are the same",
        MEMBERS + "who_stands_still_for_a_while_recovers_with_the_same_bits", codes=(0,)),
    row(8, "a worker or a link is slow",
        "named within 20 steps with the cause; dist_async goes on within --max-staleness",
        SYSTEM + "stragglers_test.py::Slowed", SYSTEM + "stragglers_test.py::OnSlowLinks",
        SYSTEM + "consistency_test.py::Consistency.test_staleness_is_told_and_bounded"),
    row(9, "a worker's way to a server is cut",
        "its end is named, not the server, 20, within 14 s",
        CLUSTER + "cut_path_test.py::CutPath.test_who_is_cut_off_is_named_and_not_the_server"),
    row(10, "two of four workers are cut off",
        "those beside the scheduler go on, the others end with 20 or 24; one epoch at a time",
        LINK + "the_side_of_the_scheduler_goes_on_alone"),
    row(11, "each twentieth packet is lost", "exit 0 and the same bits",
        LINK + "lost_repeated_and_late_packets_cost_time_alone",
        codes=(0,)),
    row(12, "a connection of data is reset",
        "its end counts as dead: 20 and its name within 10 s; --elastic goes on without it",
        MEMBERS + "a_connection_that_is_reset_ends_the_job_by_name_or_is_lived_without",
        codes=(20, 22, 33, 143)),
    row(13, "messages come twice, late, in another order", "each counts once; the same bits",
        LINK + "lost_repeated_and_late_packets_cost_time_alone",
        "tests/transport/transport_fault_test.cc::TransportFault",
        "tests/transport/transport_resend_test.cc::TransportResend",
        "tests/kvstore/sums_test.cc::Rounds.AreExactOverANetworkThatHarmsMessages"),
    row(14, "a bit flips on the way", "43 and who; with --resend 0 and the same bits",
        LINK + "flipped_bits_end_the_job", LINK + "with_resend_flipped_bits_cost_time_alone",
        "tests/transport/transport_resend_wire_test.cc::ResendWire.EachFlippedBitIsFound",
        "tests/transport/transport_seal_test.cc::Seal.AFlippedBitIsFound",
        codes=(0, 43)),
    row(15, "half a message, or a byte a second", "hung up within 10 s; the same bits",
        FAULTS + "Strangers.test_halves_and_slow_ones_are_hung_up_on",
        JOB + "cluster_hostile_test.cc::Hostile.GarbageAndSlowLorisDoNotDisturbARunningJob",
        codes=(0,)),
    row(16, "garbage at each port while a job runs", "the same bits",
        FAULTS + "Strangers.test_garbage_at_each_port_leaves_the_bits",
        codes=(0,)),
    row(17, "a secret differs, a proof is replayed",
        "30 for its owner alone, who is named; the others wait for the member itself",
        SECURITY + "a_member_with_another_secret_is_refused_alone",
        JOB + "handshake_test.cc::Handshake", JOB + "cluster_join_test.cc::Join",
        codes=(25, 30)),
    row(18, "a member sends nonsense",
        "an error by its name; nothing of it is applied",
        "tests/kvstore/ps/hostile_worker_test.cc::HostileFrame.EndsTheJobByName",
        "tests/kvstore/ps/hostile_worker_test.cc::HostileRows.EndTheJobByName",
        "tests/kvstore/ps/hostile_async_test.cc::HostileAsync"),
    row(19, "flags, networks or versions differ", "31 and both values, before the first step",
        LAUNCHERS + "different_thresholds_give_31_and_both_values",
        LAUNCHERS + "different_networks_give_31_and_both_values",
        "tests/kvstore/failures_test.cc::Mismatch",
        codes=(31,)),
    row(20, "a worker is missing, doubled, surplus",
        "25 and its name; the double gets 31 and disturbs nobody",
        LAUNCHERS + "a_missing_worker_gives_25_and_its_name",
        MEMBERS + "a_surplus_and_a_double_are_refused_and_disturb_nobody",
        codes=(0, 25, 31)),
    row(21, "one worker has fewer batches",
        "0 for it; the others end at once with 20, who left, and the step that waits",
        PYTHON + "ends_test.py::Ends.test_a_batch_more",
        codes=(0, 20)),
    row(22, "a gradient is not finite",
        "42 with worker, tensor, index, count; skip, zero, propagate as asked",
        SYSTEM + "numeric_test.py::NonFinite",
        codes=(0, 42)),
    row(23, "a kill in any call of a checkpoint", "--resume has the bits, no leftovers",
        FAULTS + "Disks.test_a_kill_at_any_system_call_of_a_write_leaves_the_bits",
        RESUME + "killed_at_any_moment_the_bits_stay"),
    row(24, "the power fails at any moment of a checkpoint",
        "what is not synced may be lost or torn: the newest whole one loads, at least the one before",
        SYSTEM + "power_test.py::Power"),
    row(25, "disk full, EIO, EDQUOT, read-only",
        "training goes on, older checkpoints stay; 41 after three in a row",
        RESUME + "on_a_full_disk_training_goes_on_and_older_ones_stay",
        RESUME + "three_failed_writes_in_a_row_end_the_run",
        FAULTS + "Disks.test_its_errors_are_told_and_cost_a_checkpoint_at_most",
        codes=(0, 2, 41)),
    row(26, "a checkpoint is damaged",
        "named and passed over for the one before; 40 where there is none",
        PLACES + "Damaged.test_another_one_is_taken_or_none",
        RESUME + "a_pipe_in_place_of_a_file_holds_nothing_up",
        "tests/trainer/checkpoint/checkpoint_test.cc::Checkpoints.DamageIsFoundAndNamed"),
    row(27, "a run is interrupted and resumed", "the bits of one that was not",
        RESUME + "killed_at_any_moment_the_bits_stay",
        SYSTEM + "resume_states_test.py::ResumeStates"),
    row(28, "resumed with another number of workers",
        "31 and both numbers, unless --reshard-residuals says how",
        RESUME + "other_numbers_of_members_need_a_flag"),
    row(29, "mpirun, the launcher is killed; Ctrl-C",
        "all are gone within 10 s, no process is left",
        SYSTEM + "mpirun_test.py::OpenMpi.test_a_killed_rank_ends_the_others_with_20",
        CLUSTER + "mpi_test.py::Mpirun.test_nothing_outlives_mpirun",
        FAILURE + "killed_launcher_takes_all_with_it", FAILURE + "sigint_stops_everything"),
    row(30, "a peer in /dev/shm dies; it has 1 MiB",
        "20 and no segment left; sockets in its place, the same bits",
        PLACES + "SharedMemory", "tests/transport/transport_failure_test.cc::TransportPeer"),
    row(31, "the clock jumps by an hour, both ways", "nobody notices; the same bits",
        PLACES + "Clock"),
    row(32, "the scheduler stops for 5 s", "it judges nobody; the same bits",
        MEMBERS + "who_stands_still_for_a_while_recovers_with_the_same_bits", codes=(0,)),
    row(33, "too few open files", "32 and the limit",
        SYSTEM + "usage_test.py::Usage.test_too_few_open_files_are_told_with_their_limit"),
    row(34, "too little memory", "32 and what it was for",
        FAILURE + "no_memory_gives_32", FAILURE + "a_limit_of_address_space_is_named",
        codes=(32,)),
    row(35, "a stranger speaks to UCX", "nothing of it reaches UCX; the same bits",
        "tests/transport/transport_ucx_stranger_test.cc::UcxTransport."
        "NothingOfAStrangerReachesUcxAndNothingIsToldToIt",
        FAULTS + "Strangers.test_garbage_at_each_port_leaves_the_bits"),
    row(36, "a stranger without the key calls a group", "it is no rank; the sums are right",
        "tests/kvstore/collective/collective_strangers_test.cc::CollectiveStrangers"),
    row(37, "150 idle strangers at every port while members come", "exit 0",
        SECURITY + "idle_strangers_at_every_port_keep_nobody_out", codes=(0,)),
    row(38, "two runs with one folder of checkpoints",
        "the second ends with 2 and whose it is; the first goes on",
        RESUME + "a_folder_has_one_run", LAUNCHERS + "a_folder_of_checkpoints_has_one_job"),
    row(39, "nobody reads; the launcher is stopped",
        "training goes on, and a death still ends all within 10 s with 20",
        FAILURE + "a_stopped_launcher_holds_nobody_up",
        FAILURE + "what_nobody_reads_holds_nobody_up"),
    row(40, "workers make unequal rounds",
        "20 at once and who left; dist_async counts it out and all end with 0",
        PYTHON + "ends_test.py::Ends.test_steps_after_a_worker_left_name_it",
        PYTHON + "ends_test.py::Ends.test_who_only_pulls_needs_nobody"),
)
