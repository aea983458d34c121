/// Engines in files of their own, which are loaded when a configuration names them.
///
/// The file of engine `x` is daqiri_engine_x.so, in a folder of DAQIRI_ENGINE_PATH (separated by
/// colons) or in `daqiri-engines` beside the library. Its RegisteredEngine registers the engine. It
/// stays loaded.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace daqiri {

/// Names of the engines that have a module, loaded or not.
std::vector<std::string> engines_with_module();

/// Loads the module of an engine that is not registered. Returns why it could not be loaded, as in
/// "its module /x/daqiri_engine_x.so cannot be loaded: ..."; empty: the engine is registered, or
/// has no module. Any thread.
std::string load_engine(std::string_view name);

/// Loads all modules. Returns why engines could not be loaded, by name.
std::map<std::string, std::string> load_engines();

}  // namespace daqiri
