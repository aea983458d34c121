#include "storage/contiguous_structure.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "storage/hdf5_file.h"
#include "storage/new_file.h"
#include "system/file.h"

namespace daqiri {

std::vector<std::byte> contiguous_structure(const FrameForm& form, const ContiguousPlaces& places,
                                            std::uint64_t frames) {
  hdf5::Image image(CONTIGUOUS_STRUCTURE);
  hdf5::Handle file = hdf5::create(image, "frames", hdf5::Format::EARLIEST);
  make_frame_layout(file, form, frames, false, [&](const FrameColumn* column, hid_t properties) {
    hdf5::require(H5Pset_layout(properties, H5D_CONTIGUOUS) >= 0 &&
                      H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY) >= 0,
                  LAY_OUT);
    image.place_values(column == nullptr ? places.frames
                                         : places.columns[static_cast<std::size_t>(*column)]);
  });
  hdf5::require(file.close(), LAY_OUT);
  return image.bytes();
}

bool cut_contiguous(const std::string& path, const FrameForm& form, const ContiguousPlaces& places,
                    std::uint64_t from, std::uint64_t to) {
  const File file =
      File::private_to_process([&] { return open(path.c_str(), O_RDWR | O_CLOEXEC); });
  if (!file.is_open()) throw file_error("cannot open", path, errno);
  const auto there = static_cast<std::uint64_t>(lock_for_writing(file, path).st_size);
  std::vector<std::byte> found(CONTIGUOUS_STRUCTURE);
  const ssize_t got = pread(file.fd(), found.data(), found.size(), 0);
  if (got < 0) throw file_error("cannot read", path, errno);
  if (static_cast<std::size_t>(got) != found.size() ||
      found != contiguous_structure(form, places, from))
    return false;
  const std::uint64_t size = places.frames + to * form.bytes;
  if (there < size) {
    throw Error(Status::INVALID_PARAMETER, "it has " + std::to_string(there) +
                                               " bytes, and its first " + std::to_string(to) +
                                               " frames end at byte " + std::to_string(size) +
                                               "; cut it to the frames it has");
  }
  const std::vector<std::byte> image = contiguous_structure(form, places, to);
  // The page with the numbers is written last, so that they are correct at any moment.
  constexpr std::size_t NUMBERS = hdf5::Image::HEADERS;
  int problem =
      write_fully(file.fd(), image.data() + NUMBERS, CONTIGUOUS_STRUCTURE - NUMBERS, NUMBERS);
  if (problem == 0) problem = write_fully(file.fd(), image.data(), NUMBERS, 0);
  if (problem == 0 &&
      (ftruncate(file.fd(), static_cast<off_t>(size)) != 0 || fsync(file.fd()) != 0))
    problem = errno;
  if (problem != 0) throw file_error("cannot write", path, problem);
  return true;
}

}  // namespace daqiri
