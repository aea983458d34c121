/// All types of the programming interface.
#pragma once

#include "daqiri/burst.h"
#include "daqiri/config.h"
#include "daqiri/file_write.h"
#include "daqiri/flow_ops.h"
#include "daqiri/packet.h"
#include "daqiri/rdma.h"
#include "daqiri/reorder.h"
#include "daqiri/s3.h"
#include "daqiri/session.h"
#include "daqiri/status.h"
