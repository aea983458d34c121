#include "storage/file_thread.h"

#include <utility>

#include "daqiri/error.h"
#include "system/file.h"
#include "system/thread.h"

namespace daqiri {

void FileWriteJob::run() noexcept {
  Status result = Status::SUCCESS;
  try {
    work(progress);
  } catch (const Error& e) {
    result = e.status();
    error = e.what();
  } catch (const std::exception& e) {
    result = Status::INTERNAL_ERROR;
    error = e.what();
  }
  hold.reset();
  {
    const std::lock_guard lock(mutex);
    status.store(result, std::memory_order_release);
  }
  ended.notify_all();
}

FileThread& file_thread() {
  static FileThread thread;
  return thread;
}

FileThread::~FileThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  submitted_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void FileThread::submit(std::shared_ptr<FileWriteJob> job) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= MAX_PENDING_FILE_WRITES) {
      throw Error(Status::NO_SPACE_AVAILABLE,
                  std::to_string(jobs_.size()) +
                      " file writes are waiting, and no more are taken; wait for some of "
                      "their handles first");
    }
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  submitted_.notify_one();
}

void FileThread::run() noexcept {
  configure_thread(std::string(ANY_CORE), "daqiri-files");
  block_file_size_signal();
  std::unique_lock lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::shared_ptr<FileWriteJob> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job->run();
    lock.lock();
  }
}

}  // namespace daqiri
