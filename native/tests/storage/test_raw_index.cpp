#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "storage/bursts.h"
#include "storage/packet_writer.h"

using namespace daqiri;
using namespace daqiri::test;
using Catch::Matchers::Contains;

TEST_CASE("A header of a raw index that could not be written is written later", "[storage][raw]") {
  const TempDir dir;
  File file(open((dir / "a.raw.npy").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(RawIndex::write_header(file.fd(), 0) == 0);
  RawIndex index;
  index.begin(std::move(file));
  {
    // Fails completely, or after a part.
    const FileSizeLimit limit(GENERATE(0, 100));
    CHECK(index.count(3) == EFBIG);
  }
  // The count is the same; only the limit is gone.
  const bool before_the_end = GENERATE(true, false);
  if (before_the_end) CHECK(index.count(3) == 0);
  CHECK(index.end(false) == 0);
  const Bytes bytes = read_file(dir / "a.raw.npy");
  CHECK(bytes.size() == 192 + 3 * sizeof(RawIndex::Row));
  CHECK_THAT(std::string(bytes.begin(), bytes.begin() + 192), Contains("'shape': (3,)"));
}
