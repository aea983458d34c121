/// Alias of daqiri.h.
#pragma once

#include "daqiri/daqiri.h"
