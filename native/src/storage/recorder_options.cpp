#include "storage/recorder_options.h"

#include <string>

#include "daqiri/error.h"
#include "system/file.h"

namespace daqiri {

void require_recordable(const RecorderOptions& options) {
  require_target(options.directory, options.prefix);
  require_run_metadata(options.metadata);
  limit_ns("roll_seconds", options.roll_seconds);
  limit_ns("max_seconds", options.max_seconds);
  if (options.group &&
      (options.max_packets > 0 || options.max_seconds > 0 || options.roll_packets > 0 ||
       options.roll_bytes > 0 || options.roll_seconds > 0)) {
    throw Error(Status::INVALID_PARAMETER,
                "a recorder of a group has its own limit; set limits on the group");
  }
  if (options.group && options.start_flow) {
    throw Error(Status::INVALID_PARAMETER,
                "start_flow is " + std::to_string(*options.start_flow) +
                    " for a recorder of a group, whose queues have no common order; record one "
                    "queue");
  }
}

}  // namespace daqiri
