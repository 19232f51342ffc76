/* Prints the layout of each struct of telegrad.h, as this compiler has it; C11,
 * and C++ by abi_sizes_cpp.cc. */
#include <stddef.h>
#include <stdio.h>
#include <telegrad.h>

#define FIELD(type, field) \
  printf("%s.%s at %u\n", #type, #field, (unsigned)offsetof(type, field))
#define STRUCT(type, last)                                      \
  do {                                                          \
    printf("%s has %u bytes\n", #type, (unsigned)sizeof(type)); \
    FIELD(type, last);                                          \
  } while (0)

int main(void) {
  printf("abi %d\n", TELEGRAD_ABI);
  STRUCT(telegrad_status, message);
  FIELD(telegrad_status, dead);
  STRUCT(telegrad_job_options, gpu);
  FIELD(telegrad_job_options, elastic_max);
  FIELD(telegrad_job_options, elastic_min);
  FIELD(telegrad_job_options, flight_recorder);
  FIELD(telegrad_job_options, encryption);
  FIELD(telegrad_job_options, metrics_file);
  FIELD(telegrad_job_options, metrics_port);
  FIELD(telegrad_job_options, tier1);
  FIELD(telegrad_job_options, gdr);
  FIELD(telegrad_job_options, hosts_part);
  FIELD(telegrad_job_options, scheduler);
  FIELD(telegrad_job_options, secret_bytes);
  STRUCT(telegrad_tensor, stream);
  FIELD(telegrad_tensor, dtype);
  STRUCT(telegrad_rows, num);
  STRUCT(telegrad_compression, momentum);
  FIELD(telegrad_compression, allow);
  FIELD(telegrad_compression, momentum_rate);
  FIELD(telegrad_compression, type);
  FIELD(telegrad_compression, min_bytes);
  STRUCT(telegrad_optimizer, reserved);
  FIELD(telegrad_optimizer, epsilon);
  STRUCT(telegrad_store_options, reserved);
  FIELD(telegrad_store_options, drop_slowest);
  FIELD(telegrad_store_options, updater_data);
  FIELD(telegrad_store_options, updater);
  FIELD(telegrad_store_options, max_staleness);
  STRUCT(telegrad_stats, num_late);
  STRUCT(telegrad_operations_options, autotune_steps);
  FIELD(telegrad_operations_options, autotune_log);
  FIELD(telegrad_operations_options, cycle_s);
  STRUCT(telegrad_operation_request, codec);
  FIELD(telegrad_operation_request, out);
  FIELD(telegrad_operation_request, prescale);
  FIELD(telegrad_operation_request, root);
  return 0;
}
