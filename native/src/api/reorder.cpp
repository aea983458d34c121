#include "api/held_burst.h"
#include "api/unavailable.h"
#include "daqiri/daqiri.h"

namespace daqiri {

Status set_reorder_cuda_stream(const std::string&, const std::string&, CUstream_st*) {
  return api::unavailable("set_reorder_cuda_stream",
                          "this build has no CUDA and no reorder stage; receive ordinary bursts");
}

Status get_reorder_burst_info(const BurstParams* params, ReorderBurstInfo* info) {
  constexpr std::string_view CALL = "get_reorder_burst_info";
  const Burst* burst = api::held(CALL, params);
  if (burst == nullptr) return api::not_held(params);
  if (info == nullptr) return api::refuse(Status::NULL_PTR, CALL, std::string_view("info is null"));
  return api::refuse(
      Status::NOT_SUPPORTED, CALL,
      std::string_view("this build has no reorder stage, so the burst is no aggregate (its "
                       "burst_flags lack DAQIRI_BURST_FLAG_REORDERED)"));
}

}  // namespace daqiri
