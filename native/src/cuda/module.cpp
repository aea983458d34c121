#include "cuda/module.h"

#include "cuda/compiler.h"
#include "daqiri/error.h"

namespace daqiri::cuda {

namespace {

/// Attributes of a GPU (CUdevice_attribute).
constexpr int CAPABILITY_MAJOR = 75;
constexpr int CAPABILITY_MINOR = 76;

}  // namespace

Module::Module(const Context& context, const std::string& source, const std::string& function,
               const std::string& what) {
  const Driver& driver = context.driver();
  const Functions& call = driver.call();
  const int gpu = context.gpu();
  const auto require = [&](Result result) { driver.require(result, what, gpu); };
  int major = 0;
  int minor = 0;
  int version = 0;
  require(call.attribute(&major, CAPABILITY_MAJOR, gpu));
  require(call.attribute(&minor, CAPABILITY_MINOR, gpu));
  require(call.version(&version));
  const std::string code = compile(source, major, minor, version / 1000);
  require(call.load_module(module_.out(context), code.data()));
  if (const Result result = call.find_function(&function_, module_.get(), function.c_str());
      result != 0) {
    throw Error(Status::INVALID_PARAMETER,
                what + ": the source has no kernel '" + function + "' (" + driver.text_of(result) +
                    "); define it as extern \"C\" __global__ void " + function + "(...)");
  }
}

}  // namespace daqiri::cuda
